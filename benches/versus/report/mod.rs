//! What a run has to say: as text, as JSON, as a web page, as Markdown.

mod bars;
mod format;
mod grid;
mod html;
mod machine;
mod markdown;
mod scale;
mod svg;
mod text;
mod view;

use std::error::Error;
use std::io::{self, Write};
use std::path::PathBuf;
use std::{env, fs};

use serde::Serialize;

use crate::options::Options;
use crate::rows::Row;
use crate::targets::{Verdict, verdicts};
use machine::Run;

/// A whole run.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    #[serde(flatten)]
    run: Run,
    rows: Vec<Row>,
    targets: Vec<Verdict>,
}

impl Report {
    /// The report on these rows, of this machine and now.
    pub(crate) fn new(rows: Vec<Row>) -> Self {
        Self {
            run: Run::this(),
            targets: verdicts(&rows),
            rows,
        }
    }

    /// Prints it, and writes the files that are asked for.
    pub(crate) fn publish(&self, options: &Options) -> Result<(), Box<dyn Error>> {
        let mut out = io::stdout().lock();
        if options.json {
            serde_json::to_writer_pretty(&mut out, self)?;
            writeln!(out)?;
        } else {
            text::write(self, &mut out)?;
        }
        drop(out);
        let page = options.html.clone().unwrap_or_else(|| {
            // A test measures nothing, and may not take a report's place.
            directory().join(if options.test {
                "test.html"
            } else {
                "report.html"
            })
        });
        if let Some(home) = page.parent() {
            fs::create_dir_all(home)?;
        }
        fs::write(&page, html::page(self)?)?;
        eprintln!("The report is {}", page.display());
        let tables = options
            .markdown
            .clone()
            .or_else(|| options.test.then(|| directory().join("test.md")));
        if let Some(file) = tables {
            markdown::write(self, &file, options.plots.as_deref())?;
            eprintln!("The tables are in {}", file.display());
        }
        Ok(())
    }
}

/// `versus` in Cargo's target directory, where this program is `release/deps/versus-…`.
fn directory() -> PathBuf {
    let program = env::current_exe().unwrap_or_default();
    let target = program.ancestors().nth(3);
    target.map_or_else(env::temp_dir, |target| target.join("versus"))
}
