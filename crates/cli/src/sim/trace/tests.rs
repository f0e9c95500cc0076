//! Traces good and bad.

use clap::ValueEnum;

use super::*;
use crate::perf::Random;

fn parse(text: &str) -> Result<Trace> {
    Trace::parse("t", text.as_bytes(), None, &[])
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
/// The beginning of hm_0.csv, and a line of another disk.
const MSR: &str = "128166372003061629,hm,0,Read,383496192,32768,58000\n\
    128166372016382155,hm,0,Write,2822144,4096,413\n128166372026382245,hm,1,Write,8192,8192,43300\n";
/// Of Alibaba's and Tencent's form: the same requests, on two volumes.
const ALIBABA: &str = "419,W,8192,4096,1577808000000046\n725,R,126703644672,4096,1577808000000130\n\
    725,W,4096,8192,1577808000000226\n419,W,0,512,1577808000000300\n";
const TENCENT: &str = "1538323200,16,8,1,419\n1538323200,247468056,8,0,725\n1538323201,8,16,1,725\n\
    1538323202,0,1,1,419\n";
/// Of CacheLib's forms.
const KVCACHE: &str = "\
op_time,key,key_size,op,op_count,size,cache_hits,ttl
1706000000,2963845,67,GET,3,251,3,0
1706000000,2963845,67,SET,1,251,,86400
1706000001,8000001,100,SET,2,8192,,0
1706000002,1111111,20,SET,1,9,,0
1706000003,8000001,100,SET,1,3900,,0
1706000003,2963845,67,SET_LEASE,1,300,,0
1706000004,8000001,100,DELETE,1,0,,
1706000004,8000001,100,DELETE,1,0,,
1706000004,9999999,100,DELETE,1,0,,
";
const KVCACHE_OLD: &str = "\
key,op,size,op_count,key_size
2963845,GET,251,3,67
2963845,SET,251,1,67
8000001,SET,8192,2,100
1111111,SET,9,1,20
8000001,SET,3900,1,100
2963845,SET,300,1,67
8000001,DELETE,0,1,100
";
const CSV: &str = "w,8192,4096\nread,0,4096\ntrim,4096,8192\n";

#[test]
fn lines_of_msr_cambridge_are_known_by_their_columns_and_each_disk_is_a_file() {
    let trace = parse(MSR).unwrap();
    assert_eq!((trace.format, trace.written, trace.streams), (Format::Msr, 3, 1));
    // 690 pages up to the end of what is written on the first disk; the second begins behind it.
    assert_eq!(trace.pages, 690 + 4);
    assert_eq!((trace.requests[0].first, trace.requests[1].first), (689, 690 + 2));
    let error = parse("128166372003061629,hm,0,Write,0,4096,1\n1,hm,0,Erase,0,1,1\n").unwrap_err();
    assert!(error.to_string().contains("t:2: expected Read or Write, not `erase`"), "{error}");
}

fn parse_devices(text: &str, devices: &[&str]) -> Result<Trace> {
    let devices: Vec<String> = devices.iter().map(|&name| name.to_owned()).collect();
    Trace::parse("t", text.as_bytes(), None, &devices)
}

#[test]
fn volumes_of_a_cloud_lie_one_behind_the_other_or_are_chosen() {
    for (text, header, format) in [
        (ALIBABA, "device_id,opcode,offset,length,timestamp\n", Format::Alibaba),
        (TENCENT, "timestamp,offset,size,ioType,volume_id\n", Format::Tencent),
    ] {
        for text in [text.to_owned(), format!("{header}{text}")] {
            let trace = parse(&text).unwrap();
            assert_eq!((trace.format, trace.pages, trace.written, trace.streams), (format, 6, 4, 1));
            assert_eq!(ops(&trace, 4), [('w', 2, 0), ('w', 4, 0), ('w', 5, 0), ('w', 0, 0)]);
            let one = parse_devices(&text, &["725"]).unwrap();
            assert_eq!((one.pages, ops(&one, 2)), (3, vec![('w', 1, 0), ('w', 2, 0)]));
            assert_eq!(ops(&parse_devices(&text, &["725", "419"]).unwrap(), 4), ops(&trace, 4));
            let error = parse_devices(&text, &["725", "7"]).unwrap_err().to_string();
            assert_eq!(error, "--trace-device: t writes nothing to `7`; it writes to 419, 725");
        }
    }
    for (text, device, pages) in [(MSR, "hm.1", 4), (BLKPARSE, "8,0", 3), (IOLOG, "/dev/a", 3)] {
        assert_eq!(parse_devices(text, &[device]).unwrap().pages, pages, "{device}");
    }
    let error = parse_devices(CSV, &["a"]).unwrap_err().to_string();
    assert_eq!(error, "--trace-device: t writes nothing to `a`; it names no devices");
}

#[test]
fn bad_lines_of_clouds_are_named() {
    refused("419,W,8192,4096,1577808000000046\n419,X,0,1,1\n", &["t:2: expected R or W, not `X`"]);
    refused("419,W,8192,4096,1\n419,W,0,1\n", &["t:2: expected 5 columns, device_id,opcode,", "not 4"]);
    refused("419,W,8192,4096,1\nx,W,0,1,1\n", &["t:2: expected the number of a volume, not `x`"]);
    refused("1,16,8,1,419\n1,16,8,2,419\n", &["t:2: expected 0 for a read or 1 for a write, not `2`"]);
    refused("1,16,8,1,419\n1,16,8\n", &["t:2: expected 5 columns, timestamp,offset,", "not 3"]);
    refused("1,16,8,1,419\nx,16,8,1,419\n", &["t:2: expected a timestamp, not `x`"]);
    refused("1,16,18446744073709551615,1,419\n", &["t:1: ", "18446744073709551615"]);
}

#[test]
fn objects_of_a_cache_are_written_to_a_place_of_their_key_and_trimmed_when_they_shrink_or_go() {
    // Keys by when they are set first: one page, three pages of 8292 bytes, one page.
    let expected = "w0 w1 w2 w3 w1 w2 w3 w4 w1 t2 t3 w0 t1";
    for text in [KVCACHE, KVCACHE_OLD, &KVCACHE_OLD[KVCACHE_OLD.find('\n').unwrap() + 1..]] {
        let trace = parse(text).unwrap();
        assert_eq!((trace.format, trace.pages, trace.streams), (Format::Kvcache, 5, 1), "{text}");
        let shown = ops(&trace, 13).iter().map(|(kind, page, _)| format!("{kind}{page}")).collect::<Vec<_>>();
        assert_eq!(shown.join(" "), expected, "{text}");
        assert_eq!(trace.written, 10);
    }
    let many = parse("k,SET,1,70000,1\n").unwrap();
    assert_eq!((many.written, many.requests.len(), ops(&many, 70_001).len()), (70_000, 2, 70_001));
    let key = "key,op,size\n";
    refused(&format!("{key}a,PUT,1\n"), &["t:2: `PUT` is no operation, expected GET, SET, DELETE"]);
    refused(&format!("{key}a,SET,x\n"), &["t:2: expected a size in bytes, not `x`"]);
    refused(&format!("{key},SET,1\n"), &["t:2: expected a key"]);
    refused(&format!("{key}a,SET\n"), &["t:2: expected a size in bytes"]);
    refused(&format!("{key}a,SET,18446744073709551615\n"), &["t:2: its object has more than"]);
    refused("a,SET,1,9999999,1\n", &["t:1: expected up to 1048576 operations in a line"]);
    refused(&format!("{key}a,SET,5000000000000\nb,SET,5000000000000\n"), &["t: its 2 keys have more than"]);
    refused(&format!("{key}a,DELETE,1\n"), &["t: the trace writes nothing"]);
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
    let error =
        Trace::parse("t", &b"w,0,4096\n\xff\x1b[2J\n"[..], None, &[]).expect_err("no text").to_string();
    assert!(error.starts_with("t:2: the line is not text") && !error.contains('\x1b'), "{error}");
}

#[test]
fn damaged_traces_are_errors_or_traces_and_nothing_else() {
    let seeds = 0..9000;
    for seed in seeds {
        let mut random = Random::new(seed, 0);
        let forms = [IOLOG, IOLOG_3, BLKPARSE, CSV, MSR, ALIBABA, TENCENT, KVCACHE, KVCACHE_OLD];
        let mut bytes = forms[seed as usize % forms.len()].as_bytes().to_vec();
        for _ in 0..=random.below(4) {
            if bytes.is_empty() {
                break;
            }
            let at = random.below(bytes.len() as u64) as usize;
            match random.below(4) {
                0 => bytes[at] = random.next() as u8,
                1 => bytes[at] = b"0123456789,+[(\n "[random.below(16) as usize],
                2 => drop(bytes.remove(at)),
                _ => bytes.truncate(at.max(1)),
            }
        }
        let all = Format::value_variants();
        let format = all.get(random.below(2 * all.len() as u64) as usize).copied();
        match Trace::parse("t", bytes.as_slice(), format, &[]) {
            Ok(trace) => {
                let mut out = Vec::new();
                Replay::new(&trace).fill(&mut out, 100);
                assert!(out.iter().all(|op| op.lpn < trace.pages), "seed {seed}");
            }
            Err(error) => assert!(error.to_string().starts_with("t:"), "seed {seed}: {error}"),
        }
    }
}
