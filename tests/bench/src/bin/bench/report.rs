//! Figures: medians with their spread, as a table for people and as JSON.
use crate::options::Options;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::time::Duration;

/// Samples of one quantity.
#[derive(Debug, Clone, Default)]
pub(crate) struct Samples(Vec<f64>);

impl Samples {
    pub(crate) fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    pub(crate) fn push_ms(&mut self, span: Duration) {
        self.0.push(span.as_secs_f64() * 1e3);
    }

    /// The value below which the share `q` (0 to 1) of all lies; 0 where there is none.
    pub(crate) fn quantile(&self, q: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        if sorted.is_empty() {
            return 0.0;
        }
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "an index of a list of at most some thousands"
        )]
        let index = ((sorted.len() - 1) as f64 * q).round() as usize;
        sorted[index]
    }

    pub(crate) fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

struct Row {
    suite: &'static str,
    what: String,
    unit: &'static str,
    samples: Samples,
    /// The promise that the median is held against, where there is one.
    target: Option<f64>,
}

/// All that was measured.
pub(crate) struct Report {
    heading: String,
    rows: Vec<Row>,
    notes: Vec<String>,
}

impl Report {
    pub(crate) fn new(options: &Options) -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = read("/proc/cpuinfo");
        let model = cpuinfo
            .lines()
            .find_map(|line| line.strip_prefix("model name"))
            .map_or("unknown processor", |rest| rest.trim_start_matches([' ', '\t', ':']));
        // Those of the machine, and not those that this program is kept on.
        let cpus = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
        let pinned = options.pin.map_or(String::new(), |cpu| format!(", all on processor {cpu}"));
        let build = if cfg!(debug_assertions) { ", NOT an optimised build" } else { "" };
        let heading = format!(
            "Linux {}, {cpus} × {model}, load {}, {} interleaved runs{pinned}{build}",
            read("/proc/sys/kernel/osrelease").trim(),
            read("/proc/loadavg").split(' ').next().unwrap_or("?"),
            options.runs,
        );
        Self { heading, rows: Vec::new(), notes: Vec::new() }
    }

    pub(crate) fn add(&mut self, suite: &'static str, what: &str, unit: &'static str, samples: Samples) {
        self.rows.push(Row { suite, what: what.to_owned(), unit, samples, target: None });
    }

    /// A figure that a promise is held against: its median must not exceed `target`.
    pub(crate) fn promise(
        &mut self,
        suite: &'static str,
        what: &str,
        unit: &'static str,
        samples: Samples,
        target: f64,
    ) {
        self.rows.push(Row { suite, what: what.to_owned(), unit, samples, target: Some(target) });
    }

    pub(crate) fn note(&mut self, text: String) {
        self.notes.push(text);
    }

    pub(crate) fn markdown(&self) -> String {
        let mut out = format!("{}\n\n", self.heading);
        out.push_str("| suite | figure | median | 5 % | 95 % | n | promise |\n");
        out.push_str("| --- | --- | ---: | ---: | ---: | ---: | --- |\n");
        for row in &self.rows {
            let s = &row.samples;
            let promise = match row.target {
                Some(target) if s.median() <= target => format!("≤ {target}: kept"),
                Some(target) => format!("≤ {target}: **missed**"),
                None => String::new(),
            };
            // Writing to a string can't fail.
            let _ = writeln!(
                out,
                "| {} | {} ({}) | {:.3} | {:.3} | {:.3} | {} | {promise} |",
                row.suite,
                row.what,
                row.unit,
                s.median(),
                s.quantile(0.05),
                s.quantile(0.95),
                s.len(),
            );
        }
        for note in &self.notes {
            let _ = write!(out, "\n{note}\n");
        }
        out
    }

    pub(crate) fn json(&self) -> String {
        let rows: Vec<Value> = self
            .rows
            .iter()
            .map(|row| {
                let s = &row.samples;
                json!({
                    "suite": row.suite, "figure": row.what, "unit": row.unit, "n": s.len(),
                    "median": s.median(), "p5": s.quantile(0.05), "p95": s.quantile(0.95),
                    "target": row.target, "kept": row.target.map(|target| s.median() <= target),
                })
            })
            .collect();
        json!({"machine": self.heading, "figures": rows, "notes": self.notes}).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles() {
        let mut samples = Samples::default();
        assert!(samples.median().abs() < 1e-9);
        for value in [5.0, 1.0, 3.0, 2.0, 4.0] {
            samples.push(value);
        }
        assert!((samples.median() - 3.0).abs() < 1e-9);
        assert!((samples.quantile(0.0) - 1.0).abs() < 1e-9);
        assert!((samples.quantile(1.0) - 5.0).abs() < 1e-9);
    }
}
