//! Traces good and bad.

use super::*;
use crate::perf::Random;

fn parse(text: &str) -> Result<Trace> {
    Trace::parse("t", text.as_bytes(), None)
}

#[track_caller]
fn refused(text: &str, parts: &[&str]) {
    let error = parse(text).expect_err("it is refused").to_string();
    for part in parts {
        assert!(error.contains(part), "`{part}` is not in: {error}");
    }
}

fn ops(trace: &Trace, count: usize) -> Vec<(char, u32, u16)> {
    let mut out = Vec::new();
    Replay::new(trace).fill(&mut out, count);
    out.iter().map(|op| (if op.kind == Kind::Write { 'w' } else { 't' }, op.lpn, op.stream)).collect()
}

const IOLOG: &str = "fio version 2 iolog\n/dev/a add\n/dev/a open\n/dev/a write 8192 4096\n/dev/a read 0 4096\n\
    /dev/a trim 4096 8192\n/dev/a sync 0 0\n/dev/a close\n";
const IOLOG_3: &str = "fio version 3 iolog\n12 /dev/a add\n12 /dev/a open\n13 /dev/a write 8192 4096\n\
    14 /dev/a read 0 4096\n15 /dev/a trim 4096 8192\n16 /dev/a close\n";
const BLKPARSE: &str = "\
  8,0    3        1     0.000000000   697  Q   W 16 + 8 [kjournald]
  8,0    3        2     0.000000300   697  G   W 16 + 8 [kjournald]
  8,0    3        3     0.000000500   697  P   N [kjournald]
  8,0    3        4     0.000000700   697  D  WS 16 + 8 [kjournald]
  8,0    3        5     0.000001000     0  C   W 16 + 8 [0]
  8,0    0        6     0.000002000   698  D   R 0 + 8 [cat]
  8,0    0        7     0.000003000   698  D  DS 8 + 16 [fstrim]
  8,0    0        8     0.000004000   698  D  FN [kworker]
CPU0 (8,0):
 Reads Queued:           1,        4KiB  Writes Queued:           1,        4KiB
";
const CSV: &str = "w,8192,4096\nread,0,4096\ntrim,4096,8192\n";

#[test]
fn lines_of_msr_cambridge_are_known_by_their_columns_and_each_disk_is_a_file() {
    // The beginning of hm_0.csv, and a line of another disk.
    let text = "128166372003061629,hm,0,Read,383496192,32768,58000\n\
                128166372016382155,hm,0,Write,2822144,4096,413\n\
                128166372026382245,hm,1,Write,8192,8192,43300\n";
    let trace = parse(text).unwrap();
    assert_eq!((trace.format, trace.written, trace.streams), (Format::Msr, 3, 1));
    // 690 pages up to the end of what is written on the first disk; the second begins behind it.
    assert_eq!(trace.pages, 690 + 4);
    assert_eq!((trace.requests[0].first, trace.requests[1].first), (689, 690 + 2));
    let error = parse("128166372003061629,hm,0,Write,0,4096,1\n1,hm,0,Erase,0,1,1\n").unwrap_err();
    assert!(error.to_string().contains("t:2: expected Read or Write, not `erase`"), "{error}");
}

#[test]
fn one_and_the_same_traffic_is_read_from_every_form() {
    let expected = [('w', 2, 0), ('t', 1, 0), ('t', 2, 0), ('w', 2, 0)];
    for (text, format) in
        [(IOLOG, Format::Iolog), (IOLOG_3, Format::Iolog), (BLKPARSE, Format::Blkparse), (CSV, Format::Csv)]
    {
        let trace = parse(text).expect(text);
        assert_eq!((trace.format, trace.pages, trace.written, trace.streams), (format, 3, 1, 1), "{text}");
        assert_eq!(ops(&trace, 4), expected, "{text}");
    }
}

#[test]
fn a_write_programs_every_page_it_touches_and_a_trim_frees_those_it_covers() {
    let trace = parse("w,4095,2\nt,1,8191\nw,0,0\n").expect("good");
    assert_eq!(ops(&trace, 3), [('w', 0, 0), ('w', 1, 0), ('t', 1, 0)]);
}

#[test]
fn files_of_a_trace_lie_one_after_the_other() {
    let trace =
        parse("fio version 2 iolog\nb write 4096 4096\na write 0 4096\nb write 0 4096\n").expect("good");
    assert_eq!(ops(&trace, 3), [('w', 1, 0), ('w', 2, 0), ('w', 0, 0)]);
    assert_eq!(trace.pages, 3);
}

#[test]
fn a_header_says_where_the_columns_are() {
    let text =
        "Timestamp,Hostname,DiskNumber,Type,Offset,Size,PID\n1,h,0,Write,0x2000,4096,3\n2,h,0,Read,0,512,\n";
    let trace = parse(text).expect("good");
    assert_eq!((ops(&trace, 1), trace.streams), (vec![('w', 2, 3)], 4));
    refused("time,op,length\n1,w,1\n", &["t:1: the header has no column `offset`"]);
}

#[test]
fn where_nothing_was_issued_what_was_queued_counts() {
    let queued = "8,0 0 1 0.0 1 Q W 0 + 8 [a]\n8,0 0 1 0.0 1 C W 0 + 8 [0]\n";
    assert_eq!(parse(queued).expect("good").written, 1);
}

#[test]
fn a_bad_line_is_named_with_its_number_and_its_text() {
    refused(
        "fio version 2 iolog\n/dev/a open\n\n/dev/a write 12\n",
        &["t:4: expected a length: `/dev/a write 12`"],
    );
    refused("fio version 2 iolog\n/dev/a erase 0 1\n", &["t:2: `erase` is no action"]);
    refused("fio version 1 iolog\n", &["t:1: ", "fio version 3 iolog", "`fio version 1 iolog`"]);
    refused("fio version 3 iolog\n/dev/a write 0 4096\n", &["t:2: expected a time, not `/dev/a`"]);
    refused("fio version 2 iolog\na write 0 4096 1\n", &["t:2: nothing was expected behind the length"]);
    refused("8,0 3 1 0.0 697 D W x + 8 [a]\n", &["t:1: expected a sector, not `x`"]);
    refused("8,0 3 1 0.0 697 D W 8 - 8 [a]\n", &["t:1: expected `+`"]);
    refused("8,0 3 1 0.0 697 D W 8 +\n", &["t:1: expected a number of sectors behind `+`"]);
    refused("8,0 3 1 0.0 697 D W 18446744073709551615 + 8 [a]\n", &["beyond every device"]);
    refused("8,0 3 1 0.0 697 D W 0 + 8 [a]\nfoo\n", &["t:2: expected a device", "`foo`"]);
    refused("w,0,4096\nw,0\n", &["t:2: expected op,offset,length", "`w,0`"]);
    refused("w,0,4096\nx,0,1\n", &["t:2: `x` is no operation"]);
    refused("w,-1,4096\n", &["t:1: expected an offset in bytes, not `-1`"]);
    refused("w,0,4096,128\n", &["t:1: expected a placement from 0 to 127, not `128`"]);
    refused("w,9223372036854775807,4096\n", &["t:1: it ends beyond"]);
    refused("w,18446744073709551615,4096\n", &["t:1: it ends beyond"]);
    refused("hello\n", &["t:1: this is no trace", "`hello`"]);
    refused("r,0,4096\n", &["t: the trace writes nothing"]);
    refused("\n\n", &["t: the trace is empty"]);
}

#[test]
fn a_line_that_is_too_long_or_no_text_is_refused_and_shown_in_part() {
    let long = format!("w,0,4096\nw,{},1\n", "0".repeat(5000));
    let error = parse(&long).expect_err("too long").to_string();
    assert!(error.starts_with("t:2: the line has more than 4096 bytes") && error.len() < 300, "{error}");
    let error = Trace::parse("t", &b"w,0,4096\n\xff\x1b[2J\n"[..], None).expect_err("no text").to_string();
    assert!(error.starts_with("t:2: the line is not text") && !error.contains('\x1b'), "{error}");
}

#[test]
fn damaged_traces_are_errors_or_traces_and_nothing_else() {
    let seeds = 0..2000;
    for seed in seeds {
        let mut random = Random::new(seed, 0);
        let mut bytes = [IOLOG, IOLOG_3, BLKPARSE, CSV][seed as usize % 4].as_bytes().to_vec();
        for _ in 0..=random.below(4) {
            let at = random.below(bytes.len() as u64) as usize;
            match random.below(4) {
                0 => bytes[at] = random.next() as u8,
                1 => bytes[at] = b"0123456789,+[(\n "[random.below(16) as usize],
                2 => drop(bytes.remove(at)),
                _ => bytes.truncate(at.max(1)),
            }
        }
        let format = [None, Some(Format::Iolog), Some(Format::Blkparse), Some(Format::Csv)];
        match Trace::parse("t", bytes.as_slice(), format[random.below(4) as usize]) {
            Ok(trace) => {
                let mut out = Vec::new();
                Replay::new(&trace).fill(&mut out, 100);
                assert!(out.iter().all(|op| op.lpn < trace.pages), "seed {seed}");
            }
            Err(error) => assert!(error.to_string().starts_with("t:"), "seed {seed}: {error}"),
        }
    }
}
