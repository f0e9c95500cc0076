use super::*;

fn text(write: impl Fn(&mut dyn Write) -> io::Result<()>) -> String {
    let mut out = Vec::new();
    write(&mut out).expect("write");
    super::super::without_padding(&out)
}

#[test]
fn a_key_value_namespace_is_shown_with_its_formats() {
    let mut data = KvNamespaceIdentify::default();
    (data.nsze, data.nuse, data.fpi, data.nkvf_z, data.kvfc) = (1 << 30, 4096, 0x80, 1, 1);
    data.kvf[0] = KvFormat { kvkml: 16, kvvml: 4096, ..KvFormat::default() };
    data.kvf[1] = KvFormat { kvkml: 16, kvvml: 256 << 20, mnks: 7, afo: 2, ..KvFormat::default() };
    let shown = text(|out| write_namespace(out, 3, &data));
    assert!(
        shown.starts_with("NVME Identify Namespace 3 (key value):\nnsze    : 0x40000000\nnuse    : 0x1000\n")
    );
    assert!(shown.contains("kvf   0 : kvkml:16 kvvml:4096 mnks:0 rp:0\n"), "{shown}");
    assert!(shown.ends_with("kvf   1 : kvkml:16 kvvml:268435456 mnks:7 rp:2 (in use)\n"), "{shown}");
    // A count beyond the table shows the table.
    data.nkvf_z = 0xff;
    assert_eq!(text(|out| write_namespace(out, 3, &data)).matches("kvkml").count(), 16);
}

#[test]
fn iterators_that_are_open_are_shown() {
    let mut log = IteratorLog::default();
    assert_eq!(text(|out| write_iterators(out, "d", &log)), "Iterators of device:d\nnone is open\n");
    log.iterators[1] = IteratorEntry {
        id: 2,
        status: 1,
        kind: 3,
        keyspace: 1,
        prefix: *b"user",
        bitmask: [0xff, 0xff, 0, 0],
        is_eof: 1,
        reserved: [0; 3],
    };
    assert_eq!(
        text(|out| write_iterators(out, "d", &log)),
        "Iterators of device:d\niterator  2 : keyspace:1 prefix:0x75736572 bitmask:0xffff0000 type:key with delete (at the end)\n"
    );
}
