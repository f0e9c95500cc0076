//! The run as comma-separated values (RFC 4180), for a spreadsheet.

use std::io::{self, Write};

use super::model::{JobFigures, Point, Row, Run};

const HEADER: &str = "pattern,io_bytes,read_percent,threads,depth,scope,device,core,iops,mib_per_second,\
    latency_us_average,latency_us_min,latency_us_max,\
    point_latency_us_p50,point_latency_us_p99,point_latency_us_p99_9,point_latency_us_p99_99,errors,miscompares,\
    point_from_submission_us_average,point_from_submission_us_p99,point_overdue_commands,\
    point_cpu_percent,point_cpu_us_per_command,interrupted,phase,settings";

/// Writes a header and one line per device and core of each point, `scope` being `core`, and one with their
/// sum, `scope` being `total`; of jobs that ran at once one for each, `scope` being `job`. Percentiles are
/// those of the whole point; they are empty when they were not recorded, as are latencies where no command
/// completed, and those from submission without a rate. Errors: what `out` returns.
pub(crate) fn write(run: &Run, out: &mut impl Write) -> io::Result<()> {
    write!(out, "{HEADER}\r\n")?;
    for point in &run.points {
        for row in &point.rows {
            line(run, point, "core", row, out)?;
        }
        for job in &point.jobs {
            let label = Row { label: job.name.clone(), ..job.total.clone() };
            line(run, &point_of(point, job), "job", &label, out)?;
        }
        line(run, point, "total", &point.total, out)?;
    }
    Ok(())
}

fn line(run: &Run, point: &Point, scope: &str, row: &Row, out: &mut impl Write) -> io::Result<()> {
    let workload = run.workload_of(point);
    let asked = format!("{},{},{}", field(&workload.pattern), workload.io_bytes, workload.read_percent);
    let core = row.core.map_or_else(String::new, |core| core.to_string());
    let device = field(&row.label);
    write!(out, "{asked},{},{},{scope},{device},{core},", point.threads, point.depth)?;
    write!(out, "{:.2},{:.2},", row.iops, row.mib_per_second)?;
    for us in [row.latency_us_average, row.latency_us_min, row.latency_us_max] {
        write!(out, "{},", figure(us))?;
    }
    for percent in [50.0, 99.0, 99.9, 99.99] {
        let us = point.latency.as_ref().and_then(|latency| latency.all.percentile_us(percent));
        write!(out, "{},", figure(us))?;
    }
    write!(out, "{},{},", row.errors, row.miscompares)?;
    if let Some(schedule) = &point.schedule {
        let (average, tail) = (schedule.from_submission_us_average, schedule.percentile_us(99.0));
        write!(out, "{},{},{},", figure(average), figure(tail), schedule.overdue_commands)?;
    } else {
        write!(out, ",,,")?;
    }
    let settings: Vec<String> =
        point.settings.iter().map(|setting| format!("{}={}", setting.name, setting.value)).collect();
    let phase = field(point.phase.as_deref().unwrap_or(""));
    let percent = figure(point.cpu.map(|cpu| cpu.percent));
    let each = figure(point.cpu.and_then(|cpu| cpu.us_per_command));
    write!(out, "{percent},{each},{},{phase},{}\r\n", run.interrupted, field(&settings.join(" ")))
}

/// A figure to three digits behind the point; empty where there is none.
fn figure(figure: Option<f64>) -> String {
    figure.map_or_else(String::new, |figure| format!("{figure:.3}"))
}

/// A job as if it were a point.
fn point_of(point: &Point, job: &JobFigures) -> Point {
    Point {
        threads: job.threads,
        depth: job.depth,
        workload: Some(job.workload.clone()),
        latency: job.latency.clone(),
        schedule: None,
        ..point.clone()
    }
}

/// A field, in quotes when it holds a character that would end it.
fn field(text: &str) -> String {
    if text.contains(['"', ',', '\r', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}
