//! The report as a web page: one file, with neither scripts nor anything from elsewhere.

use maud::{DOCTYPE, Markup, PreEscaped, html};
use tenure_benches::measure::Kind;

use super::Report;
use super::bars::bars;
use super::format::{metric, number, slug};
use super::grid::{grid, has_columns};
use super::svg::{DARK, Result, colour, hex};
use super::view::{Section, Table, is_wide, kind_name, metrics, sections, table};
use crate::rows::{NS, Row};
use crate::targets::Verdict;
use crate::workloads::WORKLOADS;

const STYLE: &str = include_str!("style.css");

/// From how many rows on they are folded away under their overview.
const MANY: usize = 4;

/// The page.
pub(super) fn page(report: &Report) -> Result<String> {
    let mut workloads: Vec<&str> = report.rows.iter().map(|row| row.workload).collect();
    workloads.dedup();
    let parts: Result<Vec<Markup>> = workloads
        .iter()
        .map(|workload| one_workload(report, workload))
        .collect();
    let parts = parts?;
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "tenure: versus" }
                style { (PreEscaped(STYLE)) (PreEscaped(DARK)) }
            }
            body {
                h1 { "tenure, beside the others" }
                p { code { (report.run.command) } }
                nav {
                    a href="#targets" { "Targets" }
                    @for workload in &workloads {
                        a href={ "#" (slug(workload)) } { (workload) }
                    }
                }
                (machine(report))
                (how_to_read())
                h2 #targets { "Targets" }
                (targets(&report.targets))
                @for part in &parts { (part) }
            }
        }
    };
    Ok(page.into_string())
}

fn machine(report: &Report) -> Markup {
    html! {
        dl {
            @for (label, value) in report.run.facts() {
                dt { (label) }
                dd { (value) }
            }
        }
    }
}

fn how_to_read() -> Markup {
    use Kind::{Coarse, Floor, Instant, Product, Tenure, TenureOtherwise};
    let kinds = [Tenure, TenureOtherwise, Coarse, Instant, Product, Floor];
    html! {
        h2 { "How to read it" }
        ul {
            li { "All contenders run in one process. They take turns of some milliseconds, round by round." }
            li { "Only the calmest third of the rounds counts, the same rounds for all." }
            li { "A number is the median of those rounds. The whiskers are the quartiles." }
            li {
                "A ratio is taken within each round, and the median of the ratios is shown. So it may "
                "differ a little from the ratio of the medians."
            }
            li { "“To tenure” is how many times tenure’s number it is: 2× takes twice as long." }
            li { "“1k/2t” in a name is: a thousand keys, two threads." }
            li { "“To floor” is the same for the first floor, which is the green line in a chart." }
            li { "“ns” is nanoseconds of one thread for one operation. “Per µs” counts the operations of all threads." }
        }
        ul.legend {
            @for kind in kinds { li { (swatch(kind)) (kind_name(kind)) } }
        }
    }
}

fn swatch(kind: Kind) -> Markup {
    html! { span.swatch style={ "background:" (hex(colour(kind))) } {} }
}

fn targets(verdicts: &[Verdict]) -> Markup {
    if verdicts.is_empty() {
        return html! { p { "None of the rows that have targets was measured." } };
    }
    let met = verdicts.iter().filter(|verdict| verdict.met).count();
    html! {
        p { (met) " of " (verdicts.len()) " met." }
        div.wide {
            table {
                thead {
                    tr {
                        th { "Row" }
                        th.left { "Number" }
                        th { "Measured" } th { "Target" } th { "Stretch" }
                        th.left { "Verdict" }
                    }
                }
                tbody {
                    @for verdict in verdicts {
                        tr {
                            th { (verdict.row) }
                            td.left {
                                (verdict.ratio)
                                @if verdict.metric != NS { ", " (metric(verdict.metric)) }
                            }
                            td { (number(verdict.value)) }
                            td { (verdict.target.replace(">=", "≥").replace("<=", "≤")) }
                            td { @if let Some(stretch) = verdict.stretch { (stretch) } }
                            td.left.met[verdict.met].missed[!verdict.met] { (verdict.word()) }
                        }
                    }
                }
            }
        }
    }
}

fn one_workload(report: &Report, workload: &str) -> Result<Markup> {
    let about = WORKLOADS.iter().find(|(name, ..)| *name == workload);
    let about = about.map_or("", |(_, about, _)| about);
    let mut parts = vec![];
    for section in sections(&report.rows) {
        if section.rows[0].workload == workload {
            parts.push(one_section(&section)?);
        }
    }
    Ok(html! {
        h2 id=(slug(workload)) { (workload) }
        p.about { (about) }
        @for part in &parts { (part) }
    })
}

fn one_section(section: &Section<'_>) -> Result<Markup> {
    if section.is_alone() {
        let row = section.rows[0];
        let part = one_row(row)?;
        return Ok(html! { (heading(row)) (part) });
    }
    let overview = if has_columns(section) {
        Some(grid(section)?)
    } else {
        None
    };
    let folded = section.rows.len() >= MANY;
    let rows: Result<Vec<Markup>> = section.rows.iter().map(|row| one_row(row)).collect();
    let rows = rows?;
    Ok(html! {
        @if let Some(overview) = overview {
            h3 { (section.name) }
            p.about {
                "Nanoseconds of tenure, and how many times as long the others take. The bars share one scale."
            }
            div.wide { (PreEscaped(overview)) }
        }
        @for (row, part) in section.rows.iter().zip(&rows) {
            @if folded {
                details id=(slug(&row.name)) {
                    summary { (row.name) }
                    div { (part) }
                }
            } @else {
                (heading(row))
                (part)
            }
        }
    })
}

fn heading(row: &Row) -> Markup {
    html! { h3 id=(slug(&row.name)) { (row.name) } }
}

fn one_row(row: &Row) -> Result<Markup> {
    let charts: Result<Vec<String>> = if is_wide(row) {
        let section = Section {
            name: row.name.clone(),
            rows: vec![row],
        };
        grid(&section).map(|chart| vec![chart])
    } else {
        metrics(row)
            .into_iter()
            .map(|name| bars(row, name))
            .collect()
    };
    let charts = charts?;
    Ok(html! {
        p.about { "One operation: " (row.operation) "." }
        div.row {
            @for chart in &charts { (PreEscaped(chart)) }
            div.wide { (contenders(&table(row))) }
        }
    })
}

fn contenders(table: &Table) -> Markup {
    html! {
        table {
            thead {
                tr {
                    th { "Contender" }
                    @for head in &table.heads { th { (head) } }
                }
            }
            tbody {
                @for (who, cells) in &table.lines {
                    tr.tenure[who.kind == Kind::Tenure] {
                        th { (swatch(who.kind)) (who.name) }
                        @for cell in cells { td { (cell) } }
                    }
                }
            }
        }
    }
}
