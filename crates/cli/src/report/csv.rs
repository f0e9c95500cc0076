//! The run as comma-separated values (RFC 4180), for a spreadsheet.

use std::io::{self, Write};

use super::model::{Point, Row, Run};

const HEADER: &str = "pattern,io_bytes,read_percent,threads,depth,scope,device,core,iops,mib_per_second,\
    latency_us_average,latency_us_min,latency_us_max,\
    point_latency_us_p50,point_latency_us_p99,point_latency_us_p99_9,point_latency_us_p99_99,errors,miscompares,\
    point_from_submission_us_average,point_from_submission_us_p99,point_overdue_commands,\
    interrupted";

/// Writes a header and one line per device and core of each point, `scope` being `core`, and one with their
/// sum, `scope` being `total`. Percentiles are those of the whole point; they are empty when they were not
/// recorded, as are latencies from submission without a rate. Errors: what `out` returns.
pub(crate) fn write(run: &Run, out: &mut impl Write) -> io::Result<()> {
    write!(out, "{HEADER}\r\n")?;
    for point in &run.points {
        for row in &point.rows {
            line(run, point, "core", row, out)?;
        }
        line(run, point, "total", &point.total, out)?;
    }
    Ok(())
}

fn line(run: &Run, point: &Point, scope: &str, row: &Row, out: &mut impl Write) -> io::Result<()> {
    let workload = &run.workload;
    let asked = format!("{},{},{}", field(&workload.pattern), workload.io_bytes, workload.read_percent);
    let core = row.core.map_or_else(String::new, |core| core.to_string());
    let device = field(&row.label);
    write!(out, "{asked},{},{},{scope},{device},{core},", point.threads, point.depth)?;
    write!(out, "{:.2},{:.2},", row.iops, row.mib_per_second)?;
    write!(out, "{:.3},{:.3},{:.3},", row.latency_us_average, row.latency_us_min, row.latency_us_max)?;
    for percent in [50.0, 99.0, 99.9, 99.99] {
        if let Some(us) = point.latency.as_ref().and_then(|latency| latency.all.percentile_us(percent)) {
            write!(out, "{us:.3}")?;
        }
        write!(out, ",")?;
    }
    write!(out, "{},{},", row.errors, row.miscompares)?;
    if let Some(schedule) = &point.schedule {
        write!(out, "{:.3},", schedule.from_submission_us_average)?;
        if let Some(us) = schedule.percentile_us(99.0) {
            write!(out, "{us:.3}")?;
        }
        write!(out, ",{},", schedule.overdue_commands)?;
    } else {
        write!(out, ",,,")?;
    }
    write!(out, "{}\r\n", run.interrupted)
}

/// A field, in quotes when it holds a character that would end it.
fn field(text: &str) -> String {
    if text.contains(['"', ',', '\r', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}
