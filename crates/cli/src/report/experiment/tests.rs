use super::*;

fn curves(x: Quantity, y: Quantity, points: Vec<(f64, f64)>) -> Figure {
    let curve = |name: &str, colour| Curve {
        name: name.to_owned(),
        colour,
        is_dashed: false,
        points: points.clone(),
    };
    let curves = vec![curve("one", 0), curve("two", 13)];
    Figure::Curves(Curves { title: "Curves".into(), note: String::new(), x, y, curves, is_wide: false })
}

fn bars(values: &[f64]) -> Bars {
    let group = |(index, &value): (usize, &f64)| {
        let bar = |name: &str, colour| Bar { name: name.to_owned(), colour, value };
        Group { name: format!("phase {index}"), bars: vec![bar("one", 0), bar("two", 1)] }
    };
    Bars {
        title: "Bars".into(),
        note: "Operations".into(),
        quantity: Quantity::PerSecond("Operations"),
        groups: values.iter().enumerate().map(group).collect(),
        rule: Some(1.0),
        is_wide: true,
    }
}

fn page(experiment: &Experiment) -> String {
    let mut out = Vec::new();
    write(experiment, &(), &mut out).expect("memory takes it");
    String::from_utf8(out).expect("UTF-8")
}

#[test]
fn each_curve_and_each_bar_is_on_the_page_with_its_name_and_value() {
    let points = vec![(1.0, 2000.0), (2.0, 4000.0), (3.0, 3000.0)];
    let figures = vec![
        curves(Quantity::Seconds, Quantity::PerSecond("Operations"), points),
        Figure::Bars(bars(&[10.0, 20.0])),
    ];
    let page = page(&Experiment { figures, ..Experiment::default() });
    // Two widths of the curves; three of the bars.
    assert_eq!(page.matches("<path class=\"line c0\"").count(), 2);
    assert_eq!(page.matches("<path class=\"line c1\"").count(), 2, "a colour beyond the last begins again");
    assert_eq!(page.matches("<rect class=\"bar c1\"").count(), 2 * 3);
    assert!(page.contains("<title>one\n2 s: 4.00 k/s</title>"), "{page}");
    assert!(page.contains("<title>phase 1, two\n20/s</title>"));
    assert!(page.contains("<line class=\"rule\""));
}

#[test]
fn bars_that_are_far_apart_are_drawn_by_magnitude_and_the_page_says_so() {
    assert!(!bars(&[10.0, 25.0]).is_logarithmic());
    assert!(!Bars { rule: None, ..bars(&[10.0, 250.0]) }.is_logarithmic());
    assert!(bars(&[10.0, 25_000.0, 0.0]).is_logarithmic());
    let figures = vec![Figure::Bars(bars(&[10.0, 25_000.0]))];
    assert!(page(&Experiment { figures, ..Experiment::default() }).contains("Operations; logarithmic"));
}

/// Where the first `what` of the page has its `side`.
fn place(page: &str, what: &str, side: &str) -> f64 {
    let (_, element) = page.split_once(what).expect("it is drawn");
    let (_, value) = element.split_once(&format!(" {side}=\"")).expect("it has that side");
    value.split_once('"').expect("it ends").0.parse().expect("a number")
}

#[test]
fn the_rule_is_drawn_at_its_value_however_far_the_bars_are_from_it() {
    for values in [&[500.0, 45_000.0][..], &[45_000.0], &[0.001, 0.002], &[2.0, 4.0]] {
        let bars = bars(values);
        let figures = vec![Figure::Bars(Bars { quantity: Quantity::Number("n"), ..bars })];
        let page = page(&Experiment { figures, ..Experiment::default() });
        let bar = "<rect class=\"bar c0\"";
        let (left, length) = (place(&page, bar, "x"), place(&page, bar, "width"));
        let rule = place(&page, "<line class=\"rule\"", "x1") - left;
        assert!(rule > 1.0, "{values:?}: the rule is at {rule}");
        assert_eq!(
            rule < length,
            values[0] > 1.0,
            "{values:?}: the rule is at {rule}, the bar ends at {length}"
        );
    }
}

#[test]
fn what_is_no_number_does_no_harm() {
    let odd = vec![(0.0, f64::NAN), (f64::INFINITY, 1.0), (1.0, 0.0), (1e18, 1e18), (-5.0, -7.0)];
    let mut figures = Vec::new();
    for x in [Quantity::Seconds, Quantity::Percentile, Quantity::Number("n"), Quantity::Percent("p")] {
        for y in [Quantity::Micros, Quantity::Percent("p"), Quantity::PerSecond("n"), Quantity::Number("n")] {
            figures.push(curves(x, y, odd.clone()));
            figures.push(curves(x, y, Vec::new()));
        }
    }
    figures.push(Figure::Bars(bars(&[f64::NAN, f64::INFINITY, 0.0, -1.0, 1e18, 1e-18])));
    figures.push(Figure::Bars(bars(&[])));
    let page = page(&Experiment { figures, ..Experiment::default() });
    assert!(page.ends_with("</html>\n"));
    let coordinates = page.split("<svg").skip(1);
    assert!(coordinates.into_iter().all(|svg| !svg.contains("d=\"MNaN") && !svg.contains("x=\"NaN")));
}

#[test]
fn text_of_others_is_escaped() {
    let evil = || "<script>alert(1)</script>\u{7}".to_owned();
    let experiment = Experiment {
        kicker: evil(),
        title: evil(),
        result: evil(),
        about: vec![evil()],
        warnings: vec![evil()],
        cards: vec![Card { title: evil(), figure: evil(), unit: "", note: evil() }],
        listings: Vec::new(),
        maps: Vec::new(),
        tables: vec![Table {
            title: evil(),
            note: "",
            columns: vec!["Phase", "n"],
            rows: vec![TableRow { head: evil(), cells: vec![evil()], starts_group: true }],
        }],
        facts: vec![Facts { title: evil(), terms: vec![(evil(), evil())] }],
        commands: vec![evil()],
        figures: Vec::new(),
    };
    let mut out = Vec::new();
    write(&experiment, &evil(), &mut out).expect("memory takes it");
    let page = String::from_utf8(out).expect("UTF-8");
    assert!(!page.contains("<script>alert"));
    assert!(page.matches("&lt;script&gt;alert(1)&lt;/script&gt;\u{FFFD}").count() >= 12);
}
