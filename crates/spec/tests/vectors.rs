//! Against bytes this project did not produce: what the Linux driver and nvme-cli put into queues, what
//! QEMU's controller answered, and how nvme-cli printed it. The files and where they come from:
//! `tests/vectors` at the root.

use std::{collections::BTreeMap, fs, path::PathBuf};

use serde_json::Value;
use unvme_spec::{
    Cid, Cqe, DataPointerKind, Lba, Nsid, Qid, Sqe, Status, admin, feature,
    identify::{
        DescriptorIter, IdentifyController, IdentifyNamespace, IndependentNamespace, IoCommandSets,
        NamespaceIdDescriptor, NamespaceList, NvmControllerIdentify, NvmNamespaceIdentify, nstat, oacs, oncs,
        text,
    },
    log_page::{
        AsyncEvent, CommandsSupported, FirmwareSlot, SmartHealth, command_effects, event_type, smart_event,
    },
    nvm::{self, AccessFlags, BlockRange, DsmRange},
    prp, regs, sgl,
};
use zerocopy::{FromBytes, IntoBytes};

fn file(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "..", "..", "tests", "vectors", name].iter().collect()
}

fn bytes(name: &str) -> Vec<u8> {
    fs::read(file(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn decode<T: FromBytes>(name: &str) -> T {
    T::read_from_bytes(&bytes(name)).unwrap_or_else(|_| panic!("{name} has the wrong size"))
}

fn json(name: &str) -> Value {
    serde_json::from_slice(&bytes(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn from_hex(text: &str) -> Vec<u8> {
    assert!(text.len().is_multiple_of(2), "odd number of digits: {text}");
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

/// One captured command: its queue, its entry and the completion, if it was answered.
struct Captured {
    qid: u16,
    sqe: Sqe,
    cqe: Option<Cqe>,
}

fn captured(name: &str) -> BTreeMap<String, Captured> {
    let text = String::from_utf8(bytes(name)).unwrap();
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let [name, qid, sqe, cqe] = line.split_whitespace().collect::<Vec<_>>()[..] else {
                panic!("not four columns: {line}");
            };
            let captured = Captured {
                qid: qid.parse().unwrap(),
                sqe: Sqe::read_from_bytes(&from_hex(sqe)).unwrap(),
                cqe: (cqe != "-").then(|| Cqe::read_from_bytes(&from_hex(cqe)).unwrap()),
            };
            (name.to_owned(), captured)
        })
        .collect()
}

/// The bytes of guest memory that a captured command pointed to: their address and content.
fn memory(name: &str) -> (u64, Vec<u8>) {
    let text = String::from_utf8(bytes("memory.hex")).unwrap();
    let line = text.lines().find(|line| line.split(' ').next() == Some(name)).unwrap();
    let [_, address, content] = line.split_whitespace().collect::<Vec<_>>()[..] else {
        panic!("not three columns: {line}");
    };
    (u64::from_str_radix(address.trim_start_matches("0x"), 16).unwrap(), from_hex(content))
}

/// What `sqe` would be had we built it from `command`: the queue fills the rest.
fn completed_like(mut built: Sqe, sqe: &Sqe) -> Sqe {
    (built.flags, built.cid, built.mptr, built.dptr) = (sqe.flags, sqe.cid, sqe.mptr, sqe.dptr);
    built
}

#[track_caller]
fn assert_admin(file: &BTreeMap<String, Captured>, name: &str, command: admin::Command) {
    let Captured { qid, sqe, .. } = &file[name];
    assert_eq!(*qid, 0, "{name}");
    assert_eq!(admin::Command::parse(sqe), command, "{name}");
    let built = completed_like(command.encode(), sqe);
    assert_eq!(built.as_bytes(), sqe.as_bytes(), "{name}");
}

#[track_caller]
fn assert_nvm(file: &BTreeMap<String, Captured>, name: &str, nsid: u32, command: nvm::Command) {
    let Captured { qid, sqe, .. } = &file[name];
    assert_eq!(*qid, 1, "{name}");
    assert_eq!(nvm::Command::parse(sqe), command, "{name}");
    let built = completed_like(command.encode(Nsid(nsid)), sqe);
    assert_eq!(built.as_bytes(), sqe.as_bytes(), "{name}");
}

fn range(start: u64, blocks: u32) -> BlockRange {
    BlockRange::new(Lba(start), blocks)
}

const PLAIN: AccessFlags = AccessFlags { force_unit_access: false, limited_retry: false, protection_info: 0 };

#[test]
fn block_commands_of_the_linux_driver_are_ours_byte_for_byte() {
    use nvm::Command::{DatasetManagement, Flush, Read, Write, WriteZeroes};
    let linux = captured("linux.hex");
    assert_nvm(&linux, "linux-write-4k", 1, Write(range(8, 8), PLAIN));
    assert_nvm(&linux, "linux-write-8k-two-prps", 1, Write(range(16, 16), PLAIN));
    assert_nvm(&linux, "linux-write-fua-512", 1, Write(range(7, 1), AccessFlags::FUA));
    assert_nvm(&linux, "linux-read-512", 1, Read(range(7, 1), PLAIN));
    assert_nvm(&linux, "linux-read-4k", 1, Read(range(8, 8), PLAIN));
    assert_nvm(&linux, "linux-write-128k", 1, Write(range(2304, 256), PLAIN));
    assert_nvm(&linux, "linux-read-high-lba", 1, Read(range(0x1f_fff0, 8), PLAIN));
    assert_nvm(&linux, "linux-flush", 1, Flush);
    let deallocate = DatasetManagement { ranges: 1, deallocate: true, hints: 0 };
    assert_nvm(&linux, "linux-dsm-deallocate", 1, deallocate);
    let zeroes = WriteZeroes { range: range(4096, 128), flags: PLAIN, deallocate: false };
    assert_nvm(&linux, "linux-write-zeroes", 1, zeroes);
    assert_nvm(&linux, "linux-write-fua-4k-block", 2, Write(range(5, 1), AccessFlags::FUA));
    assert_nvm(&linux, "linux-read-4k-block", 2, Read(range(5, 1), PLAIN));
    assert_nvm(&linux, "linux-dsm-4k-block", 2, deallocate);
}

#[test]
fn admin_commands_of_the_linux_driver_are_ours_byte_for_byte() {
    use admin::Command::{
        AsyncEventRequest, CreateIoCq, CreateIoSq, DeleteIoCq, DeleteIoSq, GetLogPage, SetFeatures,
    };
    let bringup = captured("linux-bringup.hex");
    let queues = admin::SetFeatures { fid: 7, cdw11: 0, ..Default::default() };
    assert_admin(&bringup, "bringup-05", SetFeatures(queues));
    let cq = admin::CreateIoCq { qid: Qid(1), size: 1024, contiguous: true, interrupt: Some(1) };
    assert_admin(&bringup, "bringup-06", CreateIoCq(cq));
    let sq = admin::CreateIoSq {
        qid: Qid(1),
        size: 1024,
        cqid: Qid(1),
        contiguous: true,
        priority: admin::QueuePriority::Urgent,
    };
    assert_admin(&bringup, "bringup-07", CreateIoSq(sq));
    let events = feature::AsyncEventConfiguration::new().with_namespace_attributes(true);
    let events = admin::SetFeatures { fid: 0x0b, cdw11: events.into(), ..Default::default() };
    assert_admin(&bringup, "bringup-09", SetFeatures(events));
    assert_admin(&bringup, "bringup-async-event-request", AsyncEventRequest);
    let effects = admin::GetLogPage { lid: 5, dwords: 1024, ..Default::default() };
    assert_admin(&bringup, "bringup-01", GetLogPage(effects));
    let linux = captured("linux.hex");
    assert_admin(&linux, "linux-delete-sq", DeleteIoSq { qid: Qid(1) });
    assert_admin(&linux, "linux-delete-cq", DeleteIoCq { qid: Qid(1) });
}

#[test]
fn commands_of_nvme_cli_are_ours_byte_for_byte() {
    use nvm::Command::{Compare, DatasetManagement, Flush, Read, Verify, Write, WriteZeroes};
    let cli = captured("nvme-cli.hex");
    assert_nvm(&cli, "compare", 1, Compare(range(8, 8), PLAIN));
    assert_nvm(&cli, "verify", 1, Verify(range(8, 8), PLAIN));
    assert_nvm(&cli, "write-fua", 1, Write(range(300, 2), AccessFlags::FUA));
    assert_nvm(&cli, "read", 1, Read(range(300, 2), PLAIN));
    let retry = AccessFlags { limited_retry: true, ..PLAIN };
    assert_nvm(&cli, "read-limited-retry", 1, Read(range(300, 2), retry));
    let two = DatasetManagement { ranges: 2, deallocate: true, hints: 0 };
    assert_nvm(&cli, "dsm-two-ranges", 1, two);
    assert_nvm(&cli, "dsm-read-hint", 1, DatasetManagement { ranges: 2, deallocate: false, hints: 1 });
    let zeroes = |deallocate| WriteZeroes { range: range(512, 16), flags: PLAIN, deallocate };
    assert_nvm(&cli, "write-zeroes", 1, zeroes(false));
    assert_nvm(&cli, "write-zeroes-deac", 1, zeroes(true));
    assert_nvm(&cli, "flush", 1, Flush);
}

#[test]
fn admin_commands_of_nvme_cli_are_ours_byte_for_byte() {
    use admin::Command::{Abort, FormatNvm, GetFeatures, GetLogPage, Identify, SetFeatures};
    let cli = captured("nvme-cli.hex");
    let identify = |nsid, cns| Identify(admin::Identify { nsid: Nsid(nsid), cns, ..Default::default() });
    assert_admin(&cli, "identify-ctrl", identify(0, 1));
    assert_admin(&cli, "identify-ns", identify(2, 0));
    assert_admin(&cli, "identify-ns-list", identify(0, 2));
    assert_admin(&cli, "identify-ns-descs", identify(1, 3));
    let log =
        |lid, dwords| GetLogPage(admin::GetLogPage { nsid: Nsid::ALL, lid, dwords, ..Default::default() });
    assert_admin(&cli, "get-log-smart", log(2, 128));
    assert_admin(&cli, "get-log-error", log(1, 16));
    assert_admin(&cli, "get-log-firmware", log(3, 128));
    let get =
        |fid, select| GetFeatures(admin::GetFeatures { nsid: Nsid::ALL, fid, select, ..Default::default() });
    assert_admin(&cli, "get-queues", get(7, feature::Select::Current));
    assert_admin(&cli, "get-timestamp", get(0x0e, feature::Select::Current));
    assert_admin(&cli, "get-temperature-capabilities", get(4, feature::Select::SupportedCapabilities));
    let set =
        |fid, cdw11| SetFeatures(admin::SetFeatures { nsid: Nsid::ALL, fid, cdw11, ..Default::default() });
    let cache = feature::VolatileWriteCache::new().with_enabled(true);
    assert_admin(&cli, "set-write-cache-on", set(6, cache.into()));
    let events = feature::AsyncEventConfiguration::new()
        .with_smart_critical_warnings(0x1f)
        .with_namespace_attributes(true);
    assert_admin(&cli, "set-async-events", set(0x0b, events.into()));
    let threshold = feature::TemperatureThreshold::new().with_kelvins(343);
    assert_admin(&cli, "set-temperature", set(4, threshold.into()));
    assert_admin(&cli, "abort", Abort { sqid: Qid(1), cid: Cid(5) });
    let format = admin::FormatNvm { nsid: Nsid(2), lbaf: 4, ..Default::default() };
    assert_admin(&cli, "format", FormatNvm(format));
}

#[test]
fn every_captured_entry_of_a_known_opcode_is_rebuilt_byte_for_byte() {
    // What a command does not hold: the directive of a write, and the Copy command.
    const NOT_INTERPRETED: [&str; 3] = ["write-streams", "copy", "copy-in-flight"];
    let mut rebuilt = 0;
    for name in ["linux-bringup.hex", "linux.hex", "nvme-cli.hex", "errors.hex"] {
        for (name, Captured { qid, sqe, .. }) in &captured(name) {
            let built = match *qid {
                0 => admin::Command::parse(sqe).encode(),
                _ => nvm::Command::parse(sqe).encode(Nsid(sqe.nsid)),
            };
            let built = completed_like(Sqe { nsid: sqe.nsid, ..built }, sqe);
            assert_eq!(built == *sqe, !NOT_INTERPRETED.contains(&name.as_str()), "{name}");
            rebuilt += 1;
        }
    }
    assert!(rebuilt > 80, "only {rebuilt} entries were found");
}

#[test]
fn refused_commands_carry_the_statuses_the_specification_names() {
    let errors = captured("errors.hex");
    let expected = [
        ("error-compare-failure", Status::COMPARE_FAILURE),
        ("error-lba-out-of-range-read", Status::LBA_OUT_OF_RANGE),
        ("error-lba-overflow", Status::LBA_OUT_OF_RANGE),
        ("error-transfer-over-mdts", Status::INVALID_FIELD),
        ("error-io-invalid-opcode", Status::INVALID_OPCODE),
        ("error-identify-cns", Status::INVALID_FIELD),
        ("error-identify-nsid-zero", Status::INVALID_NAMESPACE_OR_FORMAT),
        ("error-admin-invalid-opcode", Status::INVALID_OPCODE),
        ("error-feature-not-changeable", Status::FEATURE_NOT_CHANGEABLE),
        ("error-delete-sq-identifier", Status::INVALID_QUEUE_IDENTIFIER),
        ("error-delete-cq-in-use", Status::INVALID_QUEUE_DELETION),
        ("error-create-sq-identifier", Status::INVALID_QUEUE_IDENTIFIER),
        ("error-create-sq-no-cq", Status::COMPLETION_QUEUE_INVALID),
        ("error-create-sq-size", Status::INVALID_QUEUE_SIZE),
        ("error-format-lbaf", Status::INVALID_FORMAT),
    ];
    for (name, status) in expected {
        let Captured { sqe, cqe, .. } = &errors[name];
        let cqe = cqe.unwrap();
        assert_eq!(cqe.status().kind(), status, "{name}");
        // A queue that is in use may be deleted later; all others fail each time.
        assert_eq!(cqe.status().do_not_retry(), name != "error-delete-cq-in-use", "{name}");
        assert_eq!(cqe.cid, sqe.cid, "{name}");
    }
}

#[test]
fn results_of_commands_decode() {
    let bringup = captured("linux-bringup.hex");
    let queues = feature::NumberOfQueues::from(bringup["bringup-05"].cqe.unwrap().dw0);
    assert_eq!((queues.submission_z(), queues.completion_z()), (63, 63));
    let cli = captured("nvme-cli.hex");
    let threshold = feature::TemperatureThreshold::from(cli["get-temperature"].cqe.unwrap().dw0);
    assert_eq!(threshold.kelvins(), 343);
    let capabilities = feature::Capabilities::from(cli["get-temperature-capabilities"].cqe.unwrap().dw0);
    assert_eq!(capabilities, feature::Capabilities::new().with_changeable(true));
    let event = AsyncEvent::from(cli["async-event-temperature"].cqe.unwrap().dw0);
    assert_eq!(event, AsyncEvent::of(event_type::SMART, smart_event::TEMPERATURE, 2));
    assert!(cli["async-event-temperature"].cqe.unwrap().status().is_success());
}

#[test]
fn data_pointers_of_the_linux_driver_decode() {
    let linux = captured("linux.hex");
    let read = &linux["linux-read-128k-prp-list"].sqe;
    assert_eq!(read.data_pointer_kind(), DataPointerKind::Prp);
    let (address, list) = memory("linux-read-128k-prp-list.prp-list");
    assert_eq!(read.dptr[1], address);
    let (_, offset) = prp::split(read.dptr[0], 4096);
    let in_list = prp::pages(offset, 128 << 10, 4096) - 1;
    assert_eq!(list.len(), in_list as usize * prp::ENTRY_BYTES);

    let read = &linux["linux-read-128k-sgl"].sqe;
    assert_eq!(read.data_pointer_kind(), DataPointerKind::Sgl);
    let (address, segment) = memory("linux-read-128k-sgl.sgl-segment");
    let descriptor = sgl::Descriptor::from_dptr(read.dptr);
    assert_eq!(descriptor, sgl::Descriptor::last_segment(address, segment.len() as u32));
    let blocks: Vec<_> = segment
        .chunks(sgl::DESCRIPTOR_BYTES)
        .map(|chunk| sgl::Descriptor::read_from_bytes(chunk).unwrap())
        .collect();
    assert!(blocks.iter().all(|block| block.identifier == 0), "all are data blocks");
    assert_eq!(blocks.iter().map(|block| block.length).sum::<u32>(), 128 << 10);
}

#[test]
fn dataset_management_ranges_decode() {
    let ranges = |name| {
        let (_, bytes) = memory(name);
        <[DsmRange]>::ref_from_bytes(&bytes).map(<[DsmRange]>::to_vec).unwrap()
    };
    assert_eq!(
        ranges("linux-discard-in-flight.ranges"),
        [DsmRange { attributes: 0, blocks: 128, start: 2048 }]
    );
    let two = [
        DsmRange { attributes: 0, blocks: 8, start: 4096 },
        DsmRange { attributes: 0, blocks: 16, start: 8192 },
    ];
    assert_eq!(ranges("dsm-in-flight.ranges"), two);
}

#[test]
fn registers_of_a_running_controller_decode() {
    let registers = bytes("registers.bin");
    let word = |offset: u64| u32::read_from_prefix(&registers[offset as usize..]).unwrap().0;
    let cap = regs::Cap::from(u64::read_from_prefix(&registers).unwrap().0);
    assert_eq!((cap.mqes_z(), cap.cqr(), cap.to(), cap.dstrd()), (2047, true, 15, 0));
    assert_eq!((cap.css(), cap.mpsmin(), cap.mpsmax()), (0b0100_0001, 0, 4));
    assert_eq!(regs::version_parts(word(regs::offset::VS)), (1, 4, 0));
    let cc = regs::Cc::from(word(regs::offset::CC));
    assert_eq!((cc.en(), cc.css(), cc.mps(), cc.iosqes(), cc.iocqes()), (true, regs::CSS_ALL, 0, 6, 4));
    let csts = regs::Csts::from(word(regs::offset::CSTS));
    assert_eq!((csts.rdy(), csts.cfs(), csts.shst()), (true, false, regs::SHST_NORMAL));
    let aqa = regs::Aqa::from(word(regs::offset::AQA));
    assert_eq!((aqa.asqs_z(), aqa.acqs_z()), (31, 31));
}

/// Compares fields of a structure with the members of the same name in what nvme-cli printed.
macro_rules! assert_printed {
    ($json:expr, $($value:expr => $name:literal),* $(,)?) => {
        $(assert_eq!(Value::from($value), $json[$name], $name);)*
    };
}

#[test]
fn identify_controller_decodes_to_what_nvme_cli_printed() {
    let id: IdentifyController = decode("identify-cns01.bin");
    let printed = json("id-ctrl.json");
    assert_printed!(printed,
        id.vid => "vid", id.ssvid => "ssvid", id.rab => "rab", id.cmic => "cmic", id.mdts => "mdts",
        id.cntlid => "cntlid", id.ver => "ver", id.rtd3r => "rtd3r", id.rtd3e => "rtd3e", id.oaes => "oaes",
        id.ctratt => "ctratt", id.rrls => "rrls", id.cntrltype => "cntrltype", id.crdt1 => "crdt1",
        id.oacs => "oacs", id.acl_z => "acl", id.aerl_z => "aerl", id.frmw => "frmw", id.lpa => "lpa",
        id.elpe_z => "elpe", id.npss_z => "npss", id.wctemp => "wctemp", id.cctemp => "cctemp",
        id.mtfa => "mtfa", id.hmpre => "hmpre", id.tnvmcap.get().to_string() => "tnvmcap", id.kas => "kas",
        id.sanicap => "sanicap", id.endgidmax => "endgidmax", id.anagrpmax => "anagrpmax", id.pels => "pels",
        id.sqes => "sqes", id.cqes => "cqes", id.maxcmd => "maxcmd", id.nn => "nn", id.oncs => "oncs",
        id.fuses => "fuses", id.fna => "fna", id.vwc => "vwc", id.awun_z => "awun", id.awupf_z => "awupf",
        id.acwu_z => "acwu", id.cdfs => "ocfs", id.sgls => "sgls", id.mnan => "mnan", id.ioccsz => "ioccsz",
        id.msdbd => "msdbd", text::nqn(&id.subnqn).unwrap() => "subnqn",
    );
    assert_printed!(printed["psds"][0],
        id.psd[0].mp => "max_power", id.psd[0].enlat => "entry_lat", id.psd[0].exlat => "exit_lat",
    );
    let text = |field| text::Text::new(field).to_string();
    assert_eq!(Value::from(text(&id.sn)), printed["sn"].as_str().unwrap().trim_end());
    assert_eq!(Value::from(text(&id.mn)), printed["mn"].as_str().unwrap().trim_end());
    assert_eq!(Value::from(text(&id.fr)), printed["fr"].as_str().unwrap().trim_end());
    let [low, middle, high] = id.ieee;
    assert_eq!(Value::from(u32::from_le_bytes([low, middle, high, 0])), printed["ieee"]);
    let admin = oacs::FORMAT_NVM | oacs::NAMESPACE_MANAGEMENT | oacs::DIRECTIVES | oacs::DOORBELL_BUFFER;
    assert_eq!(id.oacs, admin);
    assert_eq!(
        id.oncs & (oncs::COMPARE | oncs::WRITE_UNCORRECTABLE | oncs::COPY),
        oncs::COMPARE | oncs::COPY
    );
}

#[test]
fn identify_namespace_decodes_to_what_nvme_cli_printed() {
    for (nsid, block_bytes) in [(1, 512), (2, 4096)] {
        let id: IdentifyNamespace = decode(&format!("identify-cns00-nsid{nsid}.bin"));
        let printed = json(&format!("id-ns-{nsid}.json"));
        assert_printed!(printed,
            id.nsze => "nsze", id.ncap => "ncap", id.nuse => "nuse", id.nsfeat => "nsfeat", id.nlbaf_z => "nlbaf",
            id.flbas => "flbas", id.mc => "mc", id.dpc => "dpc", id.dps => "dps", id.nmic => "nmic",
            id.dlfeat => "dlfeat", id.nvmcap.get().to_string() => "nvmcap", id.npwg_z => "npwg",
            id.npdg_z => "npdg", id.npda_z => "npda", id.nows_z => "nows", id.mssrl => "mssrl", id.mcl => "mcl",
            id.msrc_z => "msrc", id.anagrpid => "anagrpid", id.nsattr => "nsattr", id.endgid => "endgid",
        );
        let formats = printed["lbafs"].as_array().unwrap();
        assert_eq!(formats.len(), usize::from(id.nlbaf_z) + 1);
        for (lbaf, printed) in id.lbaf.iter().zip(formats) {
            assert_printed!(printed, lbaf.ms => "ms", lbaf.lbads => "ds", lbaf.rp => "rp");
        }
        assert_eq!(id.format().block_bytes(), Some(block_bytes));
    }
}

#[test]
fn the_other_identify_structures_decode() {
    let active: NamespaceList = decode("identify-cns02.bin");
    assert_eq!(active.iter().collect::<Vec<_>>(), [Nsid(1), Nsid(2)]);
    let of_command_set: NamespaceList = decode("identify-cns07.bin");
    assert_eq!(of_command_set.iter().collect::<Vec<_>>(), [Nsid(1), Nsid(2)]);
    let list = bytes("identify-cns03-nsid1.bin");
    assert_eq!(DescriptorIter::new(&list).collect::<Vec<_>>(), [NamespaceIdDescriptor::Csi(0)]);
    let limits: NvmControllerIdentify = decode("identify-cns06.bin");
    assert_eq!((limits.vsl, limits.wzsl, limits.wusl, limits.dmrl), (7, 0, 0, 255));
    assert_eq!((limits.dmrsl, limits.dmsl), (0x0007_ffff, 0x07f7_ff01));
    let extension: NvmNamespaceIdentify = decode("identify-cns05-nsid1.bin");
    assert_eq!((extension.lbstm, extension.pic, extension.elbaf), (0, 0, [0; 64]));
    let independent: IndependentNamespace = decode("identify-cns08-nsid1.bin");
    assert_eq!((independent.nmic, independent.endgid, independent.nstat), (1, 1, nstat::READY));
    let sets: IoCommandSets = decode("identify-cns1c.bin");
    assert_eq!(sets.combinations[..2], [0b101, 0]);
}

#[test]
fn log_pages_decode_to_what_nvme_cli_printed() {
    let smart: SmartHealth = decode("log-02.bin");
    assert_printed!(json("smart-log.json"),
        smart.critical_warning => "critical_warning", smart.temperature.get() => "temperature",
        smart.available_spare => "avail_spare", smart.percentage_used => "percent_used",
        smart.data_units_read.get().to_string() => "data_units_read",
        smart.host_reads.get().to_string() => "host_read_commands",
        smart.host_writes.get().to_string() => "host_write_commands",
        smart.error_log_entries.get().to_string() => "num_err_log_entries",
    );
    assert_eq!(smart.temperature.get(), 323);
    let slots: FirmwareSlot = decode("log-03.bin");
    assert_eq!((slots.afi, slots.frs[0]), (1, *b"1.0     "));
    let supported: CommandsSupported = decode("log-05.bin");
    let attachment = command_effects::CSUPP | command_effects::NIC | command_effects::CCC;
    assert_eq!(supported.admin[usize::from(admin::opcode::NAMESPACE_ATTACHMENT)], attachment);
    let write = command_effects::CSUPP | command_effects::LBCC;
    assert_eq!(supported.io[usize::from(nvm::opcode::WRITE)], write);
    assert_eq!(supported.io[usize::from(nvm::opcode::WRITE_UNCORRECTABLE)], 0);
}

/// Sent to a virtual SSD: what QEMU's controller cannot do.
#[test]
fn commands_for_firmware_and_namespaces_as_linux_and_nvme_cli_sent_them_to_our_server() {
    use admin::{AttachmentOperation, Command, CommitAction, NamespaceOperation, SecureErase};
    use nvm::Command::{DatasetManagement, Write, WriteZeroes};
    let served = captured("served.hex");
    assert_eq!(served.len(), 32);
    assert!(served.values().all(|command| command.cqe.is_none()), "our own answers are no vectors");

    let download = admin::FirmwareDownload { dwords: 0x800, offset_dwords: 0 };
    assert_admin(&served, "fw-download", Command::FirmwareDownload(download));
    let commit = admin::FirmwareCommit {
        action: CommitAction::ReplaceAndActivateAtReset,
        slot: 2,
        boot_partition: false,
    };
    assert_admin(&served, "error-fw-commit", Command::FirmwareCommit(commit));
    for (name, operation) in
        [("attach-ns", AttachmentOperation::Attach), ("detach-ns", AttachmentOperation::Detach)]
    {
        let attachment = admin::NamespaceAttachment { nsid: Nsid(1), operation };
        assert_admin(&served, name, Command::NamespaceAttachment(attachment));
    }
    for (name, nsid, operation) in
        [("create-ns", 0, NamespaceOperation::Create), ("delete-ns", 1, NamespaceOperation::Delete)]
    {
        let management = admin::NamespaceManagement { nsid: Nsid(nsid), operation, csi: 0 };
        assert_admin(&served, name, Command::NamespaceManagement(management));
    }
    let format =
        admin::FormatNvm { nsid: Nsid(1), secure_erase: SecureErase::UserData, ..Default::default() };
    assert_admin(&served, "format-erase", Command::FormatNvm(format));

    assert_nvm(&served, "write-4k", 1, Write(range(8, 8), PLAIN));
    assert_nvm(&served, "write-128k", 1, Write(range(0x900, 256), PLAIN));
    assert_nvm(&served, "write-fua-512", 1, Write(range(7, 1), AccessFlags::FUA));
    let deallocate = DatasetManagement { ranges: 1, deallocate: true, hints: 0 };
    assert_nvm(&served, "dsm-deallocate", 1, deallocate);
    let zeroes = WriteZeroes { range: range(0x1000, 128), flags: PLAIN, deallocate: false };
    assert_nvm(&served, "write-zeroes", 1, zeroes);
}

/// Linux asks for the events that our OAES offers, and not for those that QEMU's offers.
#[test]
fn linux_enables_the_asynchronous_events_of_our_controller() {
    let served = captured("served.hex");
    let Captured { sqe, .. } = &served["bringup-07"];
    // Set Features, FID 0Bh: namespace attributes (bit 8) and firmware activation (bit 9).
    assert_eq!((sqe.opcode, sqe.cdw10, sqe.cdw11), (0x09, 0x0b, 0x300));
    assert_eq!(captured("linux-bringup.hex")["bringup-09"].sqe.cdw11, 0x100);
}
