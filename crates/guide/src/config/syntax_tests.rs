use super::*;

/// The tree as plain JSON-like text, to compare whole trees.
fn shown(node: &Node<'_>) -> String {
    match &node.value {
        Value::Text(text) => format!("{text:?}"),
        Value::Word(word) => (*word).to_owned(),
        Value::Array(nodes) => format!("[{}]", nodes.iter().map(shown).collect::<Vec<_>>().join(" ")),
        Value::Object(members) => {
            let members: Vec<_> = members.iter().map(|m| format!("{}={}", m.key, shown(&m.node))).collect();
            format!("{{{}}}", members.join(" "))
        }
    }
}

fn tree(text: &str) -> String {
    shown(&parse(text).unwrap_or_else(|fault| panic!("{text}: {fault:?}")))
}

fn fault(text: &str) -> (usize, usize, String) {
    let fault = parse(text).expect_err(text);
    let (line, column) = place(text, fault.at);
    (line, column, fault.reason)
}

#[test]
fn commas_may_be_missing_and_may_trail() {
    for text in [
        r#"{"a":1,"b":[x,y],"c":{}}"#,
        r#"{"a":1 "b":[x y] "c":{}}"#,
        r#"{"a":1,"b":[x,y,],"c":{},}"#,
        "\u{feff}{\"a\":1//,\n\"b\":/*\n*/[x/**/y]\u{a0}\"c\":{}/*x*/}//",
    ] {
        assert_eq!(tree(text), "{a=1 b=[x y] c={}}", "{text}");
    }
}

#[test]
fn an_array_closed_too_early_goes_on_with_objects() {
    assert_eq!(tree(r#"{"a":[{"b":1}],{"b":2}{"b":3}"c":4}"#), "{a=[{b=1} {b=2} {b=3}] c=4}");
    assert_eq!(fault(r#"{"a":{"b":1},{"b":2}}"#), (1, 14, "expected a key or `}`, found `{`".into()));
    assert_eq!(fault(r#"{{"b":2}}"#), (1, 2, "expected a key or `}`, found `{`".into()));
}

#[test]
fn words_keep_their_spelling() {
    assert_eq!(tree(r#"{"a":00FF,"b":-1,"c":0x1,"d":1e3,"e":0-3}"#), "{a=00FF b=-1 c=0x1 d=1e3 e=0-3}");
}

#[test]
fn strings_have_the_escapes_of_json_and_any_double_quotes() {
    assert_eq!(
        tree(r#"{"a":"\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00"}"#),
        "{a=\"\\\"\\\\/\\u{8}\\u{c}\\n\\r\\té\u{1f600}\"}"
    );
    assert_eq!(
        tree("{\u{201c}a\u{201d}:\u{201e}b\u{201c}, \u{201c}c\":\"\u{201c}\"}"),
        "{a=\"b\" c=\"\u{201c}\"}"
    );
    let escapes = "expected one of \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\uXXXX";
    for text in [
        r#"{"a":"b\q"}"#,
        r#"{"a":"b\u12"}"#,
        r#"{"a":"b\ud800"}"#,
        r#"{"a":"b\ud800\u0041"}"#,
        r#"{"a":"b\u+123"}"#,
        r#"{"a":"b\udc00"}"#,
    ] {
        assert_eq!(fault(text), (1, 8, escapes.into()), "{text}");
    }
    assert_eq!(
        fault("{\"a\":\"b\tc\"}"),
        (1, 8, "a control character in a string; write it as \\u0009".into())
    );
}

#[test]
fn faults_are_where_they_are() {
    for (text, line, column, reason) in [
        ("", 1, 1, "expected `{`, and the file ends"),
        ("// c\n x", 2, 2, "expected `{`, found `x`"),
        ("[1]", 1, 1, "expected `{`, found `[`"),
        ("{} {}", 1, 4, "expected nothing after the last `}`, found `{`"),
        ("{}\n/* ", 2, 1, "the comment is not closed; expected `*/`"),
        ("\n{\n\"a\": [", 3, 7, "the file ends, and the `[` of line 3, column 6 is not closed"),
        ("\n {\n\"a\": 1", 3, 7, "the file ends, and the `{` of line 2, column 2 is not closed"),
        ("{\"a\"\n= 1}", 2, 1, "expected `:` after the key, found `=`"),
        ("{\"a\" 1}", 1, 6, "expected `:` after the key, found `1`"),
        ("{\"é\":}", 1, 7, "expected a value, found `}`"),
        ("{\"a\":1,,\"b\":2}", 1, 8, "expected a key or `}`, found `,`"),
        ("{,}", 1, 2, "expected a key or `}`, found `,`"),
        ("{\"a\":[,]}", 1, 7, "expected a value or `]`, found `,`"),
        ("{\"a\":[1}", 1, 8, "expected a value or `]`, found `}`"),
        ("{\"a\":1]", 1, 7, "expected a key or `}`, found `]`"),
        ("{a: 1}", 1, 2, "expected a key in double quotes, found `a`"),
        ("{'a': 1}", 1, 2, "expected a key or `}`, found `\\'`"),
        ("{\"a\": 'b'}", 1, 7, "a string is in double quotes"),
        ("{\"a\": \"b\n\"}", 1, 7, "the string is not closed on its line"),
        ("{\"a\": \"b", 1, 7, "the string is not closed on its line"),
        ("{\"a\": 1,\n  .....", 2, 3, "`.....` stands for something left out; write it out or delete it"),
        ("{\"a\": [ ... ]}", 1, 9, "`...` stands for something left out; write it out or delete it"),
        ("{\"a\": \u{7}}", 1, 7, "expected a value, found `\\u{7}`"),
    ] {
        assert_eq!(fault(text), (line, column, reason.into()), "{text:?}");
    }
}

#[test]
fn nesting_is_bounded() {
    let nested = |depth: usize| format!("{{\"a\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
    assert!(parse(&nested(7)).is_ok());
    let reason = "more than 8 objects and arrays within each other".into();
    assert_eq!(fault(&nested(8)), (1, 13, reason));
    assert!(parse(&nested(100_000)).is_err());
}

#[test]
fn a_fault_names_the_key_before_it() {
    let fault = parse("{\"slab_size\": 1, \"cache\": }").expect_err("no value");
    assert_eq!(fault.key.as_deref(), Some("cache"));
}
