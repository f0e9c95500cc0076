//! Plots as SVG files, for documents.

use super::super::html::{PALETTE, PLOT};
use super::figures;
use super::model::Simulation;

/// What a page says in its own style sheet.
const ALONE: &str = "\
svg { font-family: system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'DejaVu Sans', sans-serif; }
.page { fill: var(--surface); stroke: var(--edge); }
svg .title { font-size: 16px; font-weight: 600; fill: var(--ink); }
";

/// A file name and its content for each plot.
pub(crate) fn pictures(simulation: &Simulation) -> Vec<(String, String)> {
    let styles = [PALETTE, PLOT, ALONE];
    let name = &simulation.workload.name;
    let mut amplification = figures::amplification(simulation);
    amplification.wide = true;
    let mut pictures = vec![
        (format!("{name}-waf.svg"), amplification.picture(&styles)),
        (format!("{name}-utilisation.svg"), figures::mapped(simulation).picture(&styles)),
    ];
    if simulation.rows.iter().any(|row| row.util != simulation.rows[0].util) {
        pictures.push((format!("{name}-sweep.svg"), figures::sweep(simulation).picture(&styles)));
    }
    pictures
}
