use super::lines::{Recording, Simulated};
use super::page::experiment;
use super::result::{Outcome, Side};
use crate::report::experiment::write;

/// A line of `fdp watch`: millions of bytes.
fn line(time: f64, host: u64, media: u64, used: u64) -> String {
    format!(
        "{{\"time\":{time},\"host_bytes\":{},\"media_bytes\":{},\"erased_bytes\":0,\"used_bytes\":{used},\
         \"capacity_bytes\":100,\"handles_open\":{used}}}\n",
        host * 1_000_000,
        media * 1_000_000
    )
}

/// A fill without amplification, then four quarters with more in each.
fn run() -> String {
    let mut text = "{\"phase\":\"fill\"}\n".to_owned();
    text += &line(1000.0, 0, 0, 0);
    text += &line(1010.0, 800, 800, 70);
    text += "{\"operations_per_second\":9}\n{\"phase\":\"overwrite\"}\n\n";
    let media = [800, 900, 1010, 1130, 1260];
    for (index, media) in media.into_iter().enumerate() {
        text += &line(1020.0 + index as f64, 800 + 100 * index as u64, media, 80 + index as u64);
    }
    text + "{\"operations_per_second\":5.5}\n"
}

fn side(text: &str) -> Result<Side, String> {
    Recording::parse(text).and_then(|recording| Side::new("with placement", &recording))
}

#[test]
fn the_last_quarter_of_the_last_phase_is_what_it_settles_at() {
    let side = side(&run()).expect("readings");
    assert_eq!(side.quarters, [Some(1.0), Some(1.1), Some(1.2), Some(1.3)]);
    assert_eq!((side.waf, side.waf_total), (1.3, 1260.0 / 1200.0));
    // 83 % at the quarter's beginning, 84 % at its end.
    assert!((side.used - 0.835).abs() < 1e-9, "{}", side.used);
    assert_eq!((side.seconds, side.handles, side.operations_per_second), (24.0, 84, Some(5.5)));
    let phases: Vec<_> = side.phases.iter().map(|phase| (phase.name.as_str(), phase.second)).collect();
    assert_eq!(phases, [("fill", 0.0), ("overwrite", 20.0)]);
    let last = side.samples.last().expect("samples");
    assert_eq!((last.phase_bytes, last.waf), (Some(400_000_000), Some(1.3)));
    assert_eq!(side.samples[0].phase_bytes, None);
}

#[test]
fn what_is_no_recording_is_refused_with_its_line() {
    let said = |text: &str| side(text).expect_err("it is none");
    assert!(said("").contains("0 lines of `unvme fdp watch"), "{}", said(""));
    assert!(said(&line(1.0, 1, 1, 1)).contains("1 lines"));
    assert!(said("hello").starts_with("line 1: a line of `unvme fdp watch"));
    assert!(said("[1]").starts_with("line 1: "));
    assert!(said("{\"time\":1e999}").starts_with("line 1: "));
    assert!(said(&(line(1.0, 5, 5, 1) + "\n" + &line(2.0, 4, 5, 1))).starts_with("line 3: its counters"));
    assert!(said(&(line(2.0, 5, 5, 1) + &line(1.0, 5, 5, 1))).contains("its time"));
    let idle = line(1.0, 5, 5, 1).repeat(5);
    assert!(said(&idle).contains("nothing was written"), "{}", said(&idle));
    let most = u64::MAX;
    let wide = format!("{{\"time\":1,\"host_bytes\":{most},\"media_bytes\":{most},\"erased_bytes\":{most},");
    let wide = format!("{wide}\"used_bytes\":{most},\"capacity_bytes\":{most},\"handles_open\":{most}}}\n");
    assert!(said(&wide.repeat(3)).contains("nothing was written"));
    assert!(said(&(line(1.0, 0, 0, 1) + &wide.repeat(3))).contains("nothing was written"));
}

#[test]
fn figures_that_are_nobodys_are_refused() {
    let good = line(1.0, 1, 1, 100);
    for (field, bad, part) in [
        ("\"time\":1", "\"time\":-1", "line 1: time is -1e0; expected 0 to 1e12 seconds"),
        ("\"time\":1", "\"time\":1e300", "line 1: time is 1e300"),
        (
            "\"used_bytes\":100",
            "\"used_bytes\":101",
            "used_bytes is 101; expected at most capacity_bytes, 100",
        ),
        ("\"capacity_bytes\":100", "\"capacity_bytes\":0", "capacity_bytes is 0; expected the bytes of"),
    ] {
        let text = good.replace(field, bad);
        assert_ne!(text, good);
        let said = Recording::parse(&text).expect_err(bad);
        assert!(said.contains(part), "{said}");
    }
    let said = Recording::parse("{\"operations_per_second\":-1}").expect_err("below 0");
    assert!(said.contains("line 1: operations_per_second is -1e0; expected 0 to 1e12"), "{said}");
    for (figure, name) in [
        ("\"util\":0.8,\"fdp\":true", "util"),
        ("\"plateau\":1.01", "plateau"),
        ("\"device_writes\":1,\"write_amplification\":1.25", "device_writes"),
        ("\"write_amplification\":1.25", "write_amplification"),
    ] {
        for value in ["-0.5", "1e300"] {
            let end = figure.find([',', '}']).map_or("", |at| &figure[at..]);
            let bad = SIMULATION.replace(figure, &format!("\"{name}\":{value}{end}"));
            let said = Simulated::parse(&bad).expect_err(name);
            assert!(said.contains(&format!("{name} is ")), "{said}");
        }
    }
}

#[test]
fn a_line_is_told_what_it_lacks_as_what_it_is() {
    let said = |text: &str| Recording::parse(text).expect_err(text);
    let cut = line(1.0, 1, 1, 1).replace("\"host_bytes\":1000000,", "");
    assert!(said(&cut).contains("`unvme fdp watch -o json` is expected: missing field `host_bytes`"));
    assert!(said("{\"time\": 5, \"host").contains("is expected: EOF while parsing"));
    for text in ["{}", "{\"phase\":null}"] {
        assert!(
            said(text).contains("there is no `time`, `phase` or `operations_per_second`"),
            "{}",
            said(text)
        );
    }
    assert!(
        said("{\"phase\":\"time\",\"more\":1}").contains("or a remark, is expected: unknown field `more`")
    );
    assert!(Recording::parse("{\"phase\":\"time\"}").is_ok());
}

#[test]
fn what_was_said_of_a_phase_before_is_not_said_of_the_last_one() {
    let silent = run().replace("{\"operations_per_second\":5.5}\n", "");
    assert_eq!(side(&silent).expect("readings").operations_per_second, None);
    let without_phases: String = run()
        .lines()
        .filter(|line| !line.contains("phase"))
        .fold(String::new(), |text, line| text + line + "\n");
    assert_eq!(side(&without_phases).expect("readings").operations_per_second, Some(5.5));
}

#[test]
fn the_curves_go_on_to_the_last_reading_and_have_it_once() {
    for count in [7, 96, 97, 192, 193, 194, 1000] {
        let text: String = (0..count).map(|at| line(at as f64, at, at, 1)).collect();
        let side = side(&text).expect("readings");
        let seconds: Vec<f64> = side.samples.iter().map(|at| at.second).collect();
        assert_eq!(seconds.last(), Some(&side.seconds), "{count}");
        assert!(seconds.windows(2).all(|pair| pair[0] < pair[1]), "{count}: {seconds:?}");
        assert_eq!(side.samples.last().map(|at| at.host_bytes), Some(side.host_bytes));
    }
}

const SIMULATION: &str = "{\"device\":{\"physical_bytes\":118000000,\"exported_bytes\":100000000,\
    \"unit_bytes\":1048576,\"units\":112},\"rows\":[\
    {\"util\":0.8,\"fdp\":false,\"plateau\":1.5,\"samples\":[{\"device_writes\":1,\"write_amplification\":1.25}]},\
    {\"util\":0.8,\"fdp\":true,\"plateau\":1.01,\"samples\":[{\"device_writes\":1,\"write_amplification\":1}]}]}";

fn outcome(title: &str, with_simulation: bool) -> Outcome {
    let side = side(&run()).expect("readings");
    let simulated = with_simulation.then(|| Simulated::parse(SIMULATION).expect("a simulation"));
    Outcome::new(
        title.to_owned(),
        vec![title.to_owned()],
        side.clone(),
        Side { name: "without", ..side },
        simulated,
    )
}

#[test]
fn a_simulation_without_one_of_the_two_is_refused() {
    assert!(Simulated::parse("{}").expect_err("empty").contains("unvme sim --fdp both"));
    let one = SIMULATION.replace("\"fdp\":true", "\"fdp\":false");
    assert!(Simulated::parse(&one).expect_err("one").contains("no row with FDP"));
}

#[test]
fn the_page_has_both_runs_beside_the_simulation_and_text_is_escaped() {
    for with_simulation in [false, true] {
        let outcome = outcome("<script>alert(1)</script>", with_simulation);
        let mut bytes = Vec::new();
        write(&experiment(&outcome), &outcome, &mut bytes).expect("memory takes it");
        let page = String::from_utf8(bytes).expect("UTF-8");
        assert!(!page.contains("<script>alert"));
        assert!(page.contains("settles at 1.300 with placement"), "{page}");
        assert_eq!(page.contains("Beside the simulation"), with_simulation);
        assert_eq!(page.contains("simulated: 1.010"), with_simulation);
    }
}

#[test]
fn the_table_has_a_line_for_each_run() {
    let mut bytes = Vec::new();
    outcome("t", true).write_table(&mut bytes).expect("memory takes it");
    let table = String::from_utf8(bytes).expect("UTF-8");
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 3);
    assert!(lines[1].starts_with("without ") && lines[1].contains("1.500"), "{table}");
    assert!(lines[2].starts_with("with placement ") && lines[2].contains("1.010"), "{table}");
    assert!(lines.iter().all(|line| line.len() == lines[0].len()), "{table}");
}
