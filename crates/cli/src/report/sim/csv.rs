//! One line per interval of each row.

use std::io::{self, Write};

use super::model::Simulation;

/// Writes a header and a line for each sample of each row. Errors: what `out` returns.
pub(crate) fn write(simulation: &Simulation, out: &mut impl Write) -> io::Result<()> {
    write!(
        out,
        "workload,util_percent,fdp,device_writes,seconds,write_amplification,mapped_percent,free_percent\r\n"
    )?;
    for row in &simulation.rows {
        let util = super::model::percent(row.util);
        for at in &row.samples {
            let seconds = at.seconds.map_or_else(String::new, |seconds| format!("{seconds:.6}"));
            let (mapped, free) = (at.mapped * 100.0, at.free * 100.0);
            write!(
                out,
                "{},{util},{},{:.6},{seconds},",
                simulation.workload.name, row.fdp, at.device_writes
            )?;
            write!(out, "{:.6},{mapped:.4},{free:.4}\r\n", at.write_amplification)?;
        }
    }
    Ok(())
}
