//! The report as Markdown, for a file whose other parts are written by hand.

use std::fmt::{self, Write};
use std::path::{Component, Path, PathBuf};
use std::{fs, io};

use tenure_benches::measure::Kind;

use super::Report;
use super::bars::bars;
use super::format::{metric, number, slug};
use super::grid::{grid, has_columns};
use super::svg::{self, Result};
use super::view::{Section, Table, metrics, sections};
use crate::rows::NS;
use crate::targets::Verdict;

/// What is between these lines is replaced.
const BEGIN: &str = "<!-- versus: begin -->";
const END: &str = "<!-- versus: end -->";

/// What the names of the sections begin with that a plot is drawn of. All of them are in the web page.
const PLOTTED: [&str; 4] = ["pair/shared/uniform", "held", "storm", "timers"];

/// Writes the tables into that file, and the plots into a directory.
pub(super) fn write(report: &Report, file: &Path, plots: Option<&Path>) -> Result<()> {
    let home = file.parent().filter(|home| *home != Path::new(""));
    let home = home.unwrap_or(Path::new("."));
    let plots = plots.map_or_else(|| home.join("plots"), Path::to_path_buf);
    fs::create_dir_all(home)?;
    fs::create_dir_all(&plots)?;
    let link = link(home, &plots)?;
    let mut text = String::new();
    facts(report, &mut text)?;
    targets(&report.targets, &mut text)?;
    let mut workload = "";
    for section in sections(&report.rows) {
        let row = section.rows[0];
        if workload != row.workload {
            workload = row.workload;
            writeln!(text, "\n### {workload}")?;
        }
        writeln!(text, "\n#### {}\n", section.name)?;
        if section.is_alone() {
            writeln!(text, "For one operation: {}.\n", row.operation)?;
        } else {
            writeln!(
                text,
                "Nanoseconds, and how many times as long as `tenure`.\n"
            )?;
        }
        if PLOTTED.iter().any(|start| section.name.starts_with(start)) {
            let name = format!("{}.svg", slug(&section.name));
            fs::write(plots.join(&name), svg::file(&plot(&section)?))?;
            writeln!(text, "![{}]({link}/{name})\n", section.name)?;
        }
        contenders(&section.table(), &mut text)?;
    }
    let before = match fs::read_to_string(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        before => before?,
    };
    fs::write(file, splice(&before, &text))?;
    Ok(())
}

fn plot(section: &Section<'_>) -> Result<String> {
    let row = section.rows[0];
    let few = metrics(row).len() <= 3;
    match metrics(row).first() {
        Some(first) if !has_columns(section) || section.is_alone() && few => bars(row, first),
        _ => grid(section),
    }
}

fn facts(report: &Report, text: &mut String) -> fmt::Result {
    writeln!(text, "```sh\n{}\n```\n", report.run.command)?;
    head(text, &["", ""], 2)?;
    for (label, value) in report.run.facts() {
        line(text, [label, &value])?;
    }
    Ok(())
}

fn targets(verdicts: &[Verdict], text: &mut String) -> fmt::Result {
    if verdicts.is_empty() {
        return Ok(());
    }
    let met = verdicts.iter().filter(|verdict| verdict.met).count();
    writeln!(text, "\n### Targets\n\n{met} of {} met.\n", verdicts.len())?;
    let heads = ["row", "number", "measured", "target", "stretch", "verdict"];
    head(text, &heads, 2)?;
    for verdict in verdicts {
        let mut what = verdict.ratio.clone();
        if verdict.metric != NS {
            write!(what, ", {}", metric(verdict.metric))?;
        }
        let stretch = verdict.stretch.map(|stretch| stretch.to_string());
        line(
            text,
            [
                verdict.row,
                &what,
                &number(verdict.value),
                &verdict.target.replace(">=", "≥").replace("<=", "≤"),
                &stretch.unwrap_or_default(),
                verdict.word(),
            ],
        )?;
    }
    Ok(())
}

fn contenders(table: &Table, text: &mut String) -> fmt::Result {
    let heads: Vec<&str> = [""]
        .into_iter()
        .chain(table.heads.iter().map(String::as_str))
        .collect();
    head(text, &heads, 1)?;
    for (who, cells) in &table.lines {
        let bold = |cell: &str| match who.kind {
            Kind::Tenure => format!("**{cell}**"),
            _ => cell.to_owned(),
        };
        let cells = cells.iter().map(|cell| bold(cell));
        let cells: Vec<String> = [bold(who.name)].into_iter().chain(cells).collect();
        line(text, cells.iter().map(String::as_str))?;
    }
    Ok(())
}

/// The head of a table whose columns are aligned to the right, but for so many.
fn head(text: &mut String, heads: &[&str], left: usize) -> fmt::Result {
    line(text, heads.iter().copied())?;
    let rules = (0..heads.len()).map(|at| if at < left { "---" } else { "---:" });
    line(text, rules)
}

fn line<'c>(text: &mut String, cells: impl IntoIterator<Item = &'c str>) -> fmt::Result {
    let cells: Vec<String> = cells
        .into_iter()
        .map(|cell| cell.replace('|', "\\|").replace('<', "&lt;"))
        .collect();
    writeln!(text, "| {} |", cells.join(" | "))
}

/// The file with what is new between the markers; at its end, if it has none.
fn splice(before: &str, new: &str) -> String {
    let new = format!("{BEGIN}\n\n{}\n\n{END}", new.trim());
    let marked = before.split_once(BEGIN).and_then(|(head, rest)| {
        let (_, tail) = rest.split_once(END)?;
        Some(format!("{head}{new}{tail}"))
    });
    marked.unwrap_or_else(|| match before.trim_end() {
        "" => format!("{new}\n"),
        before => format!("{before}\n\n{new}\n"),
    })
}

/// How one gets from one directory to another, both of which are there.
fn link(from: &Path, to: &Path) -> io::Result<String> {
    let (from, to) = (fs::canonicalize(from)?, fs::canonicalize(to)?);
    let (mut from, mut to) = (from.components().peekable(), to.components().peekable());
    while from.peek().is_some() && from.peek() == to.peek() {
        from.next();
        to.next();
    }
    let up = from.map(|_| Component::ParentDir);
    let path: PathBuf = up.chain(to).collect();
    Ok(if path.as_os_str().is_empty() {
        ".".into()
    } else {
        path.display().to_string()
    })
}
