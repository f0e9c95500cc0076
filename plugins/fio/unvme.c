/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * fio's engine for unvme: blocks, key-value pairs and data placement on every device that libunvme opens.
 *
 * Compiled against the headers of the fio that is installed (`make fio`): the structures of fio's that are
 * used here change with its versions. docs/fio.md says what the options do.
 *
 * A job has queues of its own (unvme_queue_open()) for each of its files, and its buffers are memory that
 * devices reach (unvme_alloc()). Devices are shared by the jobs of a process. Those that live in a process
 * make their jobs threads, whatever the job says: several processes would each have a device of their own.
 */
#include <ctype.h>
#include <stdarg.h>

#include "fio.h"
#include "optgroup.h"
#include "verify.h"

#include <kv_apis.h>
#include <unvme.h>

#if FIO_IOOPS_VERSION >= 32
#define HAS_FDP 1
#ifdef UNVME_FIO_HAS_DATAPLACEMENT
#include "dataplacement.h"
#else
#include "fdp.h"
#endif
#else
#define HAS_FDP 0
#endif

#define QUEUES_MAX 64
#define PLACEMENTS_MAX 128
#define KEY_LENGTH_MAX 255
#define DEPTH_MAX 4095
#define MESSAGE_MAX 512

/* What a job may say. */
struct options {
	void *pad; /* an offset of 0 means none */
	char *json_path;
	char *device_options;
	char *command_type;
	char *placements;
	unsigned int key_length;
	unsigned int pair_commands;
	unsigned int pair_type;
	unsigned int keyspace;
	unsigned int read_miss;
	unsigned int trim;
	unsigned int completion;
	unsigned int queues;
	unsigned int nsid;
	unsigned int command_timeout;
	unsigned int hdgst;
	unsigned int ddgst;
	unsigned int verify_command;
	unsigned int zeroes;
	unsigned int fdp;
	unsigned int select;
};

enum { PAIRS_DETECT, PAIRS_SAMSUNG, PAIRS_STANDARD };
enum { MISS_ERROR, MISS_IGNORE };
enum { TRIM_DELETE, TRIM_EXIST };
enum { SELECT_ROUNDROBIN, SELECT_RANDOM };

#define OPTION(option_name, long_name, field, kind)                                                             \
	.name = option_name, .lname = long_name, .type = kind, .off1 = offsetof(struct options, field),         \
	.category = FIO_OPT_C_ENGINE, .group = FIO_OPT_G_INVALID

static struct fio_option options[] = {
	{
		OPTION("json_path", "unvme configuration", json_path, FIO_OPT_STR_STORE),
		.help = "Configuration of the uNVMe SDK: type and CPUs of each device (*.json)",
	},
	{
		OPTION("ks", "unvme key size", key_length, FIO_OPT_INT),
		.alias = "keysize",
		.def = "16",
		.minval = 4,
		.maxval = KEY_LENGTH_MAX,
		.help = "Pairs: bytes of a key, 4 to 255",
	},
	{
		OPTION("kv", "unvme pairs", pair_commands, FIO_OPT_STR),
		.def = "detect",
		.help = "Pairs: the commands they are moved with",
		.posval = {
			{ .ival = "detect", .oval = PAIRS_DETECT, .help = "What the namespace is says so" },
			{ .ival = "samsung", .oval = PAIRS_SAMSUNG, .help = "The vendor commands of Samsung's drives" },
			{ .ival = "standard", .oval = PAIRS_STANDARD, .help = "NVM Express's Key Value Command Set" },
		},
	},
	{
		OPTION("keyspace", "unvme keyspace", keyspace, FIO_OPT_INT),
		.def = "0",
		.maxval = 255,
		.help = "Pairs: keyspace",
	},
	{
		OPTION("kv_read_miss", "unvme read miss", read_miss, FIO_OPT_STR),
		.def = "error",
		.help = "Pairs: what reading a key is that is not there",
		.posval = {
			{ .ival = "error", .oval = MISS_ERROR, .help = "An I/O error" },
			{ .ival = "ignore", .oval = MISS_IGNORE, .help = "A read" },
		},
	},
	{
		OPTION("kv_trim", "unvme trim of pairs", trim, FIO_OPT_STR),
		.def = "delete",
		.help = "Pairs: what a trim does",
		.posval = {
			{ .ival = "delete", .oval = TRIM_DELETE, .help = "Deletes the pair, if it is there" },
			{ .ival = "exist", .oval = TRIM_EXIST, .help = "Asks whether it is there" },
		},
	},
	{
		OPTION("completion", "unvme completion", completion, FIO_OPT_STR),
		.def = "poll",
		.help = "How a job waits for completions",
		.posval = {
			{ .ival = "poll", .oval = UNVME_COMPLETION_POLL, .help = "Looks until they are there" },
			{ .ival = "interrupt", .oval = UNVME_COMPLETION_INTERRUPT, .help = "Sleeps" },
			{ .ival = "hybrid", .oval = UNVME_COMPLETION_HYBRID, .help = "Looks for a while, then sleeps" },
		},
	},
	{
		OPTION("queues", "unvme queues", queues, FIO_OPT_INT),
		.def = "1",
		.minval = 1,
		.maxval = QUEUES_MAX,
		.help = "Queue pairs of a job on each device, in turn",
	},
	{
		OPTION("nsid", "unvme namespace", nsid, FIO_OPT_INT),
		.def = "0",
		.help = "Namespace of devices whose name does not end with ,nsid=N; 0: the first",
	},
	{
		OPTION("command_timeout", "unvme command timeout", command_timeout, FIO_OPT_INT),
		.def = "0",
		.help = "Milliseconds that a command may take before it is aborted; 0: 30000",
	},
	{
		OPTION("hdgst", "unvme header digest", hdgst, FIO_OPT_BOOL),
		.def = "0",
		.help = "NVMe/TCP: CRC-32C of headers",
	},
	{
		OPTION("ddgst", "unvme data digest", ddgst, FIO_OPT_BOOL),
		.def = "0",
		.help = "NVMe/TCP: CRC-32C of data",
	},
	{
		OPTION("device_options", "unvme device options", device_options, FIO_OPT_STR_STORE),
		.help = "Added to the names of devices behind a comma, such as keep-alive=5,reconnect=30",
	},
	{
		OPTION("zeroes", "unvme trim with zeroes", zeroes, FIO_OPT_BOOL),
		.def = "0",
		.help = "Blocks: trims are Write Zeroes, which say that blocks may be deallocated",
	},
	{
		OPTION("verify_command", "unvme reads as Verify", verify_command, FIO_OPT_BOOL),
		.def = "0",
		.help = "Blocks: reads are Verify, which moves no data",
	},
	{
		OPTION("cmd_type", "unvme command type", command_type, FIO_OPT_STR_STORE),
		.help = "nvme: for jobs that were written for io_uring_cmd",
	},
#if !HAS_FDP
	{
		OPTION("fdp", "unvme data placement", fdp, FIO_OPT_BOOL),
		.def = "0",
		.help = "Flexible Data Placement: writes name a placement",
	},
	{
		OPTION("fdp_pli", "unvme placement indices", placements, FIO_OPT_STR_STORE),
		.help = "Which of the device's placement identifiers, as indices from 0: 0,2,3; all of them if not given",
	},
	{
		OPTION("fdp_pli_select", "unvme placement selection", select, FIO_OPT_STR),
		.def = "roundrobin",
		.help = "How one of them is chosen for a write",
		.posval = {
			{ .ival = "random", .oval = SELECT_RANDOM, .help = "At random" },
			{ .ival = "roundrobin", .oval = SELECT_ROUNDROBIN, .help = "In turn" },
		},
	},
#endif
	{ .name = NULL },
};

/* A device that is open in this process. */
struct device {
	struct device *next;
	char *name;
	uint64_t handle;
	unsigned int users;
	pid_t owner;
};

static pthread_mutex_t devices_lock = PTHREAD_MUTEX_INITIALIZER;
static struct device *devices;

/* An I/O that failed, and with what. */
struct failure {
	const struct io_u *io_u;
	uint16_t status;
	int result;
};

/* A job's side of one of its files. */
struct lane {
	struct job *job;
	struct device *device;
	unvme_queue *queues[QUEUES_MAX];
	unsigned int queue_count;
	unsigned int next;
	bool is_pairs;
	unsigned int block_bytes;
	uint64_t unit; /* bytes of offset for a key */
	uint16_t placements[PLACEMENTS_MAX];
	unsigned int placement_count;
	unsigned int placement_next;
};

/* A job: one of fio's, or one of the threads that issue its commands with io_submit_mode=offload. */
struct job {
	struct lane **lanes; /* by number of the file; NULL: not open yet */
	unsigned int lane_count;
	unsigned int look_next; /* lane to look at first */
	unsigned int rung; /* commands queued since the last ring */
	struct io_u **queued; /* whose time of issue is to be set */
	struct io_u **events;
	unvme_completion *completions;
	unsigned int depth;
	struct failure *failures; /* the last ones, in turn: as many as can be outstanding */
	unsigned int failure_next;
	bool sets_issue_time;
	bool has_said; /* why commands fail */
	bool ignores_misses;
	struct frand_state random;
	bool core_masked;
};

/* One line to the user, with the name of the device. */
static void __attribute__((format(printf, 2, 3))) complain(const char *name, const char *format, ...)
{
	char text[MESSAGE_MAX];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	/* Messages of the library begin with the name already. */
	if (!strncmp(text, name, strlen(name)))
		log_err("unvme: %s\n", text);
	else
		log_err("unvme: %s: %s\n", name, text);
}

/* "0000.02.00.0", as the guide of the uNVMe SDK has it, because fio splits names at colons. */
static bool is_dotted_address(const char *name)
{
	static const char form[] = "xxxx.xx.xx.x";
	size_t i;

	for (i = 0; i < sizeof(form) - 1; i++)
		if (form[i] == 'x' ? !isxdigit((unsigned char)name[i]) : name[i] != form[i])
			return false;
	return !name[i] || name[i] == ',';
}

/* The name that libunvme knows, without ,nsid=N, which goes to *nsid. To be freed; NULL: complained. */
static char *device_name(const char *file, const struct options *o, unsigned int *nsid)
{
	static const char mark[] = ",nsid=";
	size_t room = strlen(file) + (o->device_options ? strlen(o->device_options) : 0) + sizeof(",hdgst,ddgst,");
	char *name = malloc(room), *found, *end;

	if (!name) {
		complain(file, "no memory");
		return NULL;
	}
	strcpy(name, file);
	*nsid = o->nsid;
	found = strstr(name, mark);
	if (found) {
		unsigned long number = strtoul(found + sizeof(mark) - 1, &end, 10);

		if (end == found + sizeof(mark) - 1 || (*end && *end != ',') || number == 0 || number >= UINT32_MAX) {
			complain(file, "the number of a namespace, from 1, is expected behind nsid=");
			free(name);
			return NULL;
		}
		*nsid = number;
		memmove(found, end, strlen(end) + 1);
	}
	if (is_dotted_address(name))
		name[4] = name[7] = ':';
	if (!strncmp(name, "tcp:", 4)) {
		if (o->hdgst)
			strcat(name, ",hdgst");
		if (o->ddgst)
			strcat(name, ",ddgst");
	}
	if (o->device_options && *o->device_options) {
		strcat(name, ",");
		strcat(name, o->device_options);
	}
	return name;
}

/* Whether several processes reach the same device by this name, without one of them being its host. */
static bool is_shared(const char *name)
{
	return !strncmp(name, "vfio-user:", 10) || !strncmp(name, "tcp:", 4) || !strncmp(name, "kernel:", 7);
}

/* Opens a device as one of blocks, or of pairs where it has none. */
static int open_as_it_is(const char *name, const struct options *o, uint64_t *handle)
{
	unvme_options how = {
		.size = sizeof(how),
		.slab_bytes = 8 << 20,
		.poll = true,
		.command_ms = o->command_timeout,
	};
	char why[MESSAGE_MAX];
	bool only_pairs = o->pair_commands == PAIRS_SAMSUNG || o->pair_type;
	int result = KV_ERR_DD_UNSUPPORTED_CMD;

	why[0] = '\0';
	if (!only_pairs) {
		result = unvme_open(name, LBA_TYPE_SSD, &how, handle);
		if (result == KV_SUCCESS || result == KV_ERR_DD_NO_DEVICE)
			return result;
		snprintf(why, sizeof(why), "%s", unvme_last_error());
	}
	result = unvme_open(name, KV_TYPE_SSD, &how, handle);
	if (result != KV_SUCCESS && why[0]) {
		/* Neither: what is wrong with it is what was said first. */
		complain(name, "%s", why);
		return -1;
	}
	return result;
}

/* The device of a name, opened if it is not. NULL: complained. */
static struct device *device_get(const char *name, const struct options *o)
{
	struct device *device;
	int result;

	pthread_mutex_lock(&devices_lock);
	for (device = devices; device; device = device->next)
		if (device->owner == getpid() && !strcmp(device->name, name))
			break;
	if (!device) {
		device = calloc(1, sizeof(*device));
		if (device)
			device->name = strdup(name);
		if (!device || !device->name) {
			complain(name, "no memory");
			goto failed;
		}
		result = open_as_it_is(name, o, &device->handle);
		if (result != KV_SUCCESS) {
			if (result > 0)
				complain(name, "%s", unvme_last_error());
			goto failed;
		}
		device->owner = getpid();
		device->next = devices;
		devices = device;
	}
	device->users++;
	pthread_mutex_unlock(&devices_lock);
	return device;

failed:
	pthread_mutex_unlock(&devices_lock);
	if (device)
		free(device->name);
	free(device);
	return NULL;
}

/* Lets go of a device; the last user closes it. */
static void device_put(struct device *device)
{
	struct device **link;

	pthread_mutex_lock(&devices_lock);
	if (--device->users == 0) {
		for (link = &devices; *link != device; link = &(*link)->next)
			;
		*link = device->next;
		unvme_close(device->handle);
		free(device->name);
		free(device);
	}
	pthread_mutex_unlock(&devices_lock);
}

/* The devices of jobs that have ended are closed with the process: what was written is there after it. */
static void __attribute__((destructor)) close_all(void)
{
	for (; devices; devices = devices->next)
		if (devices->owner == getpid())
			unvme_close(devices->handle);
}

/* A queue of a job. NULL: complained. */
static unvme_queue *queue_open(const struct device *device, const struct options *o, unsigned int nsid,
			       unsigned int depth, unvme_queue_info *info)
{
	unvme_queue_options how = {
		.size = sizeof(how),
		.depth = depth < 1 ? 1 : depth > DEPTH_MAX ? DEPTH_MAX : depth,
		.nsid = nsid,
		.command_ms = o->command_timeout,
		.completion = o->completion,
		.commands = o->pair_commands == PAIRS_SAMSUNG	 ? UNVME_PAIRS_VENDOR
			    : o->pair_commands == PAIRS_STANDARD ? UNVME_PAIRS_STANDARD
								 : UNVME_PAIRS_ANY,
	};
	unvme_queue *queue = NULL;

	*info = (unvme_queue_info){ .size = sizeof(*info) };
	if (unvme_queue_open(device->handle, &how, &queue) != KV_SUCCESS ||
	    unvme_queue_info_get(queue, info) != KV_SUCCESS) {
		complain(device->name, "%s", unvme_last_error());
		return NULL;
	}
	return queue;
}

/* Whether the device takes a job's block sizes; false: complained. */
static bool takes_sizes(struct thread_data *td, const char *name, const unvme_queue_info *info)
{
	static const char *const verbs[] = { "reads", "writes", "trims" };
	const struct thread_options *o = &td->o;
	enum fio_ddir ddir;
	unsigned int i;

	for (ddir = DDIR_READ; ddir <= DDIR_TRIM; ddir++) {
		unsigned long long sizes[3 + 64];
		unsigned int count = 0;

		if (!(ddir == DDIR_READ ? td_read(td) || td->o.verify != VERIFY_NONE
		      : ddir == DDIR_WRITE ? td_write(td) : td_trim(td)))
			continue;
		sizes[count++] = o->min_bs[ddir];
		sizes[count++] = o->max_bs[ddir];
		for (i = 0; i < o->bssplit_nr[ddir] && i < 64; i++)
			sizes[count++] = o->bssplit[ddir][i].bs;
		for (i = 0; i < count; i++) {
			if (info->block_bytes && sizes[i] % info->block_bytes) {
				complain(name, "%s of %llu bytes: its blocks have %u bytes; give bs= a multiple of that",
					 verbs[ddir], sizes[i], info->block_bytes);
				return false;
			}
			if (info->value_bytes_max && ddir != DDIR_TRIM && sizes[i] > info->value_bytes_max) {
				complain(name, "values of %llu bytes: it takes at most %llu in one command; give a smaller bs=",
					 sizes[i], (unsigned long long)info->value_bytes_max);
				return false;
			}
		}
		if (info->block_bytes && o->bs_unaligned) {
			complain(name, "bs_unaligned: its blocks have %u bytes", info->block_bytes);
			return false;
		}
	}
	return true;
}

/* Whether the keys of a job can be told apart; false: complained. */
static bool takes_keys(struct thread_data *td, const char *name, const unvme_queue_info *info)
{
	const struct options *o = td->eo;
	uint64_t keys = info->bytes / td_min_bs(td);

	if (o->key_length < info->key_length_min || o->key_length > info->key_length_max) {
		complain(name, "ks=%u: its keys have %u to %u bytes", o->key_length, info->key_length_min,
			 info->key_length_max);
		return false;
	}
	if (td->o.size && td->o.size < info->bytes)
		keys = (td->o.size + td->o.start_offset) / td_min_bs(td);
	if (o->key_length < 8 && keys > 1ull << (8 * o->key_length)) {
		complain(name, "ks=%u: %llu pairs have different keys only with longer ones; give a larger ks= or a smaller size=",
			 o->key_length, (unsigned long long)keys);
		return false;
	}
	return true;
}

/* What a configuration file of the uNVMe SDK says; NULL: complained. One thread at a time. */
static const kv_sdk *configuration(const char *path)
{
	static kv_sdk sdk;
	size_t length = strlen(path);

	if (length < 5 || strcmp(path + length - 5, ".json")) {
		complain(path, "json_path= is the path of a configuration, *.json");
		return NULL;
	}
	memset(&sdk, 0, sizeof(sdk));
	if (kv_sdk_load_option(&sdk, (char *)path) != KV_SUCCESS) {
		complain(path, "%s", unvme_last_error());
		return NULL;
	}
	return &sdk;
}

/* The place of a device in a configuration; -1: complained. */
static int place_of(const kv_sdk *sdk, const char *path, const char *name)
{
	int i;

	for (i = 0; i < sdk->nr_ssd; i++)
		if (!strcmp(sdk->dev_id[i], name))
			return i;
	complain(name, "it is not a dev_id of %s; fio can use the devices that are configured there", path);
	return -1;
}

/* A job with a configuration: what the original plugin said, and its CPU. */
static int follow_configuration(struct thread_data *td, struct job *job)
{
	struct options *o = td->eo;
	const kv_sdk *sdk;
	uint64_t mask = ~0ull;
	unsigned int i, cpu = 0, nsid;
	os_cpu_mask_t cpus;
	int result = 1;

	pthread_mutex_lock(&devices_lock);
	sdk = configuration(o->json_path);
	for (i = 0; sdk && i < job->lane_count; i++) {
		char *name = device_name(td->files[i]->file_name, o, &nsid);
		int at = name ? place_of(sdk, o->json_path, name) : -1;

		free(name);
		if (at < 0)
			goto out;
		mask &= sdk->dd_options[at].core_mask;
	}
	if (!sdk)
		goto out;
	if (td->thread_number == 1)
		log_info("unvme2_fio_plugin is built with fio version=%d.%d\n", UNVME_FIO_MAJOR, UNVME_FIO_MINOR);
	/* The lowest CPU that all devices of the job have, if the machine has it. */
	while (mask && !(mask & 1)) {
		mask >>= 1;
		cpu++;
	}
	if (mask && cpu < (unsigned int)sysconf(_SC_NPROCESSORS_ONLN)) {
		fio_cpuset_init(&cpus);
		fio_cpu_set(&cpus, cpu);
		fio_setaffinity(gettid(), cpus);
		fio_cpuset_exit(&cpus);
	}
	/* A thread that only issues a job's commands has no number. */
	if (td->thread_number)
		log_info("job %u will generate IO to the devices below(at core %u)\n", td->thread_number, cpu);
	for (i = 0; td->thread_number && i < job->lane_count; i++) {
		char *name = device_name(td->files[i]->file_name, o, &nsid);
		int at = name ? place_of(sdk, o->json_path, name) : -1;

		if (at >= 0 && job->lanes[i])
			log_info(" %s: handle=0x%llx, core_mask=0x%llx, cq_mask=0x%llx, sector_size=%u\n",
				 td->files[i]->file_name, (unsigned long long)job->lanes[i]->device->handle,
				 (unsigned long long)sdk->dd_options[at].core_mask,
				 (unsigned long long)sdk->dd_options[at].cq_thread_mask,
				 job->lanes[i]->block_bytes);
		free(name);
	}
	result = 0;
out:
	pthread_mutex_unlock(&devices_lock);
	return result;
}

/* Fio's word for a failure before a job runs; what is wrong has been said. */
static int refuse(struct thread_data *td)
{
	td->error = EINVAL;
	snprintf(td->verror, sizeof(td->verror), "unvme: the job cannot run, see above");
	return 1;
}

/* One line about an option that is not followed to the letter, once a run for all jobs. */
static void remark(bool *is_said, const struct thread_data *td, const char *text)
{
	if (!__atomic_exchange_n(is_said, true, __ATOMIC_RELAXED))
		log_info("unvme: %s: %s\n", td->o.name, text);
}

/*
 * experimental_verify= repeats the job's random numbers in place of a log of its writes. With reads and
 * writes mixed the repetition has other directions than the job had: fio draws them by counters
 * (rwmix_issues) that the reads of the verification advance, too. Engines that prepare a command before fio
 * makes a read of it write once more what they should read, and so do not see it; one that reads reports
 * blocks as wrong which were never written. The log of writes, fio's default, verifies the same blocks.
 */
static void verify_by_log(struct thread_data *td)
{
	static bool is_said;

	if (!td->o.experimental_verify || !td_rw(td) || td->o.verify == VERIFY_NONE)
		return;
	td->o.experimental_verify = 0;
	remark(&is_said, td, "experimental_verify=1 cannot repeat mixed reads and writes: verified by the log of writes");
}

/* Whether a job asks for what there is not; false: complained. */
static bool takes_options(struct thread_data *td)
{
	const struct options *o = td->eo;

	/* A log that is replayed has the names of its devices itself. */
	if (!td->o.read_iolog_file && (!td->o.nr_files || !td->o.filename)) {
		log_err("unvme: %s: filename= is missing: the name of a device, such as mem\\:block\\:1G, 0000.02.00.0 or tcp\\:HOST\\:PORT/NQN\n",
			td->o.name);
		return false;
	}
	if (fio_option_is_set(&td->o, odirect) && !td->o.odirect) {
		static bool is_said;

		remark(&is_said, td, "direct=0 is as direct=1: nothing between fio and the device buffers");
	}
	if (td->o.zone_mode == ZONE_MODE_ZBD) {
		log_err("unvme: %s: zonemode=zbd: zones are not driven here; give zonemode=none\n", td->o.name);
		return false;
	}
	if (o->command_type && strcmp(o->command_type, "nvme")) {
		log_err("unvme: %s: cmd_type=%s: nvme is expected\n", td->o.name, o->command_type);
		return false;
	}
	return true;
}

/* Sizes of the devices; in the process that starts the jobs, before any of them runs. */
static int unvme_setup(struct thread_data *td)
{
	struct options *o = td->eo;
	struct fio_file *f;
	unsigned int i;
	bool is_local = false;

	if (!takes_options(td))
		return refuse(td);
	verify_by_log(td);
	/* The devices of a log are known when the job has begun: they may be this process's own. */
	is_local = td->o.read_iolog_file != NULL;
	if (o->json_path) {
		const kv_sdk *sdk = configuration(o->json_path);

		if (!sdk)
			return refuse(td);
		o->pair_type = sdk->ssd_type == KV_TYPE_SSD;
		for_each_file(td, f, i) {
			unsigned int nsid;
			char *name = device_name(f->file_name, o, &nsid);
			int at = name ? place_of(sdk, o->json_path, name) : -1;

			free(name);
			if (at < 0)
				return refuse(td);
		}
	}
	for_each_file(td, f, i) {
		unsigned int nsid;
		unvme_queue_info info;
		struct device *device;
		unvme_queue *queue;
		bool is_fit;
		char *name = device_name(f->file_name, o, &nsid);

		if (!name)
			return refuse(td);
		is_local |= !is_shared(name);
		device = device_get(name, o);
		free(name);
		if (!device)
			return refuse(td);
		queue = queue_open(device, o, nsid, 1, &info);
		is_fit = queue && takes_sizes(td, device->name, &info) &&
			 (info.ssd_type != KV_TYPE_SSD || takes_keys(td, device->name, &info));
		if (queue)
			unvme_queue_close(queue);
		/*
		 * The device stays open for jobs that are threads: one that lives in this process would forget what
		 * jobs before have written. Others open it themselves.
		 */
		if (is_shared(device->name) && !td->o.use_thread)
			device_put(device);
		if (!is_fit)
			return refuse(td);
		f->real_file_size = info.bytes;
		f->filetype = FIO_TYPE_BLOCK;
		fio_file_set_size_known(f);
	}
	if (is_local && !td->o.use_thread) {
		if (td->pid) { /* it has been started */
			log_err("unvme: %s: create_serialize=0 needs thread=1: the devices are this process's own\n",
				td->o.name);
			return refuse(td);
		}
		td->o.use_thread = 1;
	}
	return 0;
}

/* Which of the device's placement identifiers a job writes to, in turn or at random. */
static int choose_placements(struct lane *lane, const struct options *o, const char *name)
{
	unvme_fdp_handle handles[PLACEMENTS_MAX];
	size_t count = 0;
	const char *at = o->placements;

	if (!o->fdp)
		return 0;
	if (lane->is_pairs || unvme_fdp_status(lane->device->handle, handles, PLACEMENTS_MAX, &count) != KV_SUCCESS ||
	    !count) {
		complain(name, "fdp=1: the namespace has no placement handles; enable Flexible Data Placement, or leave fdp= out");
		return 1;
	}
	if (count > PLACEMENTS_MAX)
		count = PLACEMENTS_MAX;
	if (!at || !*at) {
		for (; lane->placement_count < count; lane->placement_count++)
			lane->placements[lane->placement_count] = handles[lane->placement_count].placement;
		return 0;
	}
	while (*at) {
		char *end;
		unsigned long index = strtoul(at, &end, 10);

		if (end == at || (*end && *end != ',') || index >= count || lane->placement_count == PLACEMENTS_MAX) {
			complain(name, "fdp_pli=%s: indices from 0 to %zu with commas between them are expected", o->placements,
				 count - 1);
			return 1;
		}
		lane->placements[lane->placement_count++] = handles[index].placement;
		at = *end ? end + 1 : end;
	}
	return 0;
}

static void lane_close(struct lane *lane)
{
	unsigned int q;

	if (!lane)
		return;
	for (q = 0; q < lane->queue_count; q++)
		unvme_queue_close(lane->queues[q]);
	if (lane->device)
		device_put(lane->device);
	free(lane);
}

static void unvme_cleanup(struct thread_data *td)
{
	struct job *job = td->io_ops_data;
	unsigned int i;

	if (!job)
		return;
	for (i = 0; i < job->lane_count; i++)
		lane_close(job->lanes[i]);
	free(job->lanes);
	free(job->queued);
	free(job->events);
	free(job->completions);
	free(job->failures);
	free(job);
	td->io_ops_data = NULL;
}

/* Opens what a job has of its own. */
static int lane_open(struct thread_data *td, struct lane *lane, struct fio_file *f)
{
	struct options *o = td->eo;
	unvme_queue_info info;
	unsigned int nsid;
	char *name = device_name(f->file_name, o, &nsid);

	if (!name)
		return 1;
	lane->job = td->io_ops_data;
	lane->device = device_get(name, o);
	/* A device of a log: unvme_setup() has not seen it, and it stays open for the jobs after this one, too. */
	if (lane->device && td->o.read_iolog_file && !is_shared(name) && td->thread_number)
		device_get(name, o);
	free(name);
	if (!lane->device)
		return 1;
	while (lane->queue_count < o->queues) {
		unvme_queue *queue = queue_open(lane->device, o, nsid, td->o.iodepth, &info);

		if (!queue)
			return 1;
		lane->queues[lane->queue_count++] = queue;
	}
	lane->is_pairs = info.ssd_type == KV_TYPE_SSD;
	lane->block_bytes = info.block_bytes;
	lane->unit = td_min_bs(td);
	if (td->o.read_iolog_file) {
		f->real_file_size = info.bytes;
		f->filetype = FIO_TYPE_BLOCK;
		fio_file_set_size_known(f);
	}
	return choose_placements(lane, o, f->file_name);
}

/* Opens the lane of a file, if it is not open. */
static int lane_add(struct thread_data *td, unsigned int number, struct fio_file *f)
{
	struct job *job = td->io_ops_data;
	struct lane *lane;

	if (number >= job->lane_count) {
		struct lane **lanes = realloc(job->lanes, (number + 1) * sizeof(*lanes));

		if (!lanes)
			goto no_memory;
		memset(lanes + job->lane_count, 0, (number + 1 - job->lane_count) * sizeof(*lanes));
		job->lanes = lanes;
		job->lane_count = number + 1;
	}
	if (job->lanes[number])
		return 0;
	lane = calloc(1, sizeof(*lane));
	if (!lane)
		goto no_memory;
	if (lane_open(td, lane, f)) {
		lane_close(lane);
		return 1;
	}
	job->lanes[number] = lane;
	return 0;

no_memory:
	log_err("unvme: %s: no memory\n", td->o.name);
	return 1;
}

static int unvme_init(struct thread_data *td)
{
	struct options *o = td->eo;
	struct job *job = calloc(1, sizeof(*job));
	unsigned int i;

	td->io_ops_data = job;
	if (job) {
		job->depth = td->o.iodepth;
		job->queued = calloc(job->depth, sizeof(*job->queued));
		job->events = calloc(job->depth, sizeof(*job->events));
		job->completions = calloc(job->depth, sizeof(*job->completions));
		job->failures = calloc(job->depth, sizeof(*job->failures));
	}
	if (!job || !job->queued || !job->events || !job->completions || !job->failures) {
		log_err("unvme: %s: no memory\n", td->o.name);
		return 1;
	}
	job->ignores_misses = o->read_miss == MISS_IGNORE;
	init_rand_seed(&job->random, td->thread_number, false);
	/* for_each_file() shows nothing to a thread of io_submit_mode=offload, whose copies are not counted. */
	for (i = 0; td->files && i < td->o.nr_files; i++)
		if (td->files[i] && lane_add(td, i, td->files[i]))
			return 1;
	if (o->json_path && follow_configuration(td, job))
		return 1;
#if FIO_IOOPS_VERSION >= 31
	/* One look at the clock for all commands that go together. */
	job->sets_issue_time = true;
	td->io_ops->flags |= FIO_ASYNCIO_SETS_ISSUE_TIME;
	td_set_ioengine_flags(td);
#endif
	return 0;
}

static int unvme_iomem_alloc(struct thread_data *td, size_t bytes)
{
	td->orig_buffer = unvme_alloc(bytes, 0);
	if (!td->orig_buffer)
		log_err("unvme: %s: there are no %zu bytes for buffers that devices reach: give a smaller iodepth= or bs=, raise `ulimit -l`, or reserve huge pages\n",
			td->o.name, bytes);
	return !td->orig_buffer;
}

static void unvme_iomem_free(struct thread_data *td)
{
	unvme_free(td->orig_buffer);
	td->orig_buffer = NULL;
}

/* The key of an offset: its number among blocks of the smallest size, little endian, then zeroes. */
static void key_of(unsigned char *key, unsigned int length, uint64_t number)
{
	unsigned int i;

	for (i = 0; i < length; i++, number = i < 8 ? number >> 8 : 0)
		key[i] = number & 0xff;
}

/* The placement of a write, if it has one. */
static void place(struct thread_data *td, struct job *job, struct lane *lane, const struct io_u *io_u,
		  unvme_command *command)
{
#if HAS_FDP
	if (io_u->dtype != 2)
		return;
	command->placement = io_u->dspec;
#else
	const struct options *o = td->eo;

	if (!lane->placement_count)
		return;
	if (o->select == SELECT_RANDOM)
		lane->placement_next = rand_between(&job->random, 0, lane->placement_count - 1);
	else if (++lane->placement_next >= lane->placement_count)
		lane->placement_next = 0;
	command->placement = lane->placements[lane->placement_next];
#endif
	command->flags |= UNVME_PLACED;
}

/* What fio asks for, in unvme's words. False: there is no such command. */
static bool command_of(struct thread_data *td, struct job *job, struct lane *lane, struct io_u *io_u,
		       unvme_command *command, unsigned char *key)
{
	const struct options *o = td->eo;

	if (ddir_sync(io_u->ddir)) {
		command->verb = UNVME_FLUSH;
		return true;
	}
	command->length = io_u->xfer_buflen;
	command->data = io_u->xfer_buf;
	if (!lane->is_pairs) {
		command->lba = io_u->offset / lane->block_bytes;
		if (io_u->offset % lane->block_bytes)
			return false;
		switch (io_u->ddir) {
		case DDIR_READ:
			command->verb = o->verify_command ? UNVME_VERIFY : UNVME_READ;
			return true;
		case DDIR_WRITE:
			command->verb = UNVME_WRITE;
			command->flags = td->o.sync_io ? UNVME_FUA : 0;
			place(td, job, lane, io_u, command);
			return true;
		case DDIR_TRIM:
			command->verb = o->zeroes ? UNVME_WRITE_ZEROES : UNVME_DEALLOCATE;
			command->flags = o->zeroes ? UNVME_DEALLOCATE_ZEROES : 0;
			return true;
		default:
			return false;
		}
	}
	key_of(key, o->key_length, io_u->offset / lane->unit);
	command->key = key;
	command->key_length = o->key_length;
	command->keyspace = o->keyspace;
	switch (io_u->ddir) {
	case DDIR_READ:
		command->verb = UNVME_RETRIEVE;
		return true;
	case DDIR_WRITE:
		command->verb = UNVME_STORE;
		return true;
	case DDIR_TRIM:
		command->verb = o->trim == TRIM_EXIST ? UNVME_EXIST : UNVME_DELETE;
		command->length = 0;
		return true;
	default:
		return false;
	}
}

/* A command that was not taken ends the job: the device is gone, or it has no such command. */
static enum fio_q_status not_taken(struct thread_data *td, struct io_u *io_u, int result)
{
	struct job *job = td->io_ops_data;

	io_u->error = result == KV_ERR_DD_UNSUPPORTED_CMD ? EOPNOTSUPP : result == KV_ERR_IO ? ENODEV : EINVAL;
	if (unvme_last_status())
		io_u->error = EIO;
	if (!job->has_said)
		complain(io_u->file->file_name, "%s", unvme_last_error());
	job->has_said = true;
	return FIO_Q_COMPLETED;
}

static enum fio_q_status unvme_queue_io(struct thread_data *td, struct io_u *io_u)
{
	struct job *job = td->io_ops_data;
	/* Not what hangs on the file: with io_submit_mode=offload that is of another thread, with its own queues. */
	unsigned int number = io_u->file->fileno;
	struct lane *lane = number < job->lane_count ? job->lanes[number] : NULL;
	unvme_command command = { .token = (uint64_t)(uintptr_t)io_u };
	unsigned char key[KEY_LENGTH_MAX];
	int result;

	fio_ro_check(td, io_u);
	io_u->engine_data = lane;
	if (!lane) {
		complain(io_u->file->file_name, "io_submit_mode=offload: the device was not known when the job began");
		io_u->error = ENODEV;
		return FIO_Q_COMPLETED;
	}
	if (!command_of(td, job, lane, io_u, &command, key)) {
		complain(io_u->file->file_name, "%s at offset %llu: a multiple of %u is expected", io_ddir_name(io_u->ddir),
			 io_u->offset, lane->block_bytes);
		io_u->error = EINVAL;
		return FIO_Q_COMPLETED;
	}
	if (lane->queue_count > 1 && ++lane->next >= lane->queue_count)
		lane->next = 0;
	result = unvme_queue_submit(lane->queues[lane->next], &command);
	if (result == KV_ERR_DD_NO_AVAILABLE_RESOURCE)
		return FIO_Q_BUSY;
	if (result != KV_SUCCESS)
		return not_taken(td, io_u, result);
	if (job->sets_issue_time && job->rung < job->depth)
		job->queued[job->rung] = io_u;
	job->rung++;
	return FIO_Q_QUEUED;
}

static void set_issue_times(struct thread_data *td, struct job *job)
{
	struct timespec now;
	unsigned int i;

	if (!job->sets_issue_time || !fio_fill_issue_time(td))
		return;
	fio_gettime(&now, NULL);
	for (i = 0; i < job->rung && i < job->depth; i++) {
		job->queued[i]->issue_time = now;
		io_u_queued(td, job->queued[i]);
	}
	/* Only for a log of what was done. */
	if (td->o.read_iolog_file)
		td->last_issue = now;
}

static int unvme_commit(struct thread_data *td)
{
	struct job *job = td->io_ops_data;
	unsigned int i, q;

	if (!job->rung)
		return 0;
	set_issue_times(td, job);
	job->rung = 0;
	for (i = 0; i < job->lane_count; i++)
		for (q = 0; job->lanes[i] && q < job->lanes[i]->queue_count; q++)
			if (unvme_queue_ring(job->lanes[i]->queues[q]) != KV_SUCCESS) {
				complain(job->lanes[i]->device->name, "%s", unvme_last_error());
				return -ENODEV;
			}
	return 0;
}

/* What a completion is to fio. */
static void note(struct thread_data *td, struct io_u *io_u, const unvme_completion *done)
{
	const struct options *o = td->eo;
	struct job *job = td->io_ops_data;

	if (done->result == KV_ERR_NOT_EXIST_KEY &&
	    (io_u->ddir == DDIR_TRIM || (o->read_miss == MISS_IGNORE && td->o.verify == VERIFY_NONE)))
		return;
	/* The one error, beside a wrong sequence of bytes, with which continue_on_error goes on. */
	io_u->error = EIO;
	if (++job->failure_next >= job->depth)
		job->failure_next = 0;
	job->failures[job->failure_next] = (struct failure){ io_u, done->status, done->result };
}

/* Takes what has completed, at most max. */
static unsigned int take(struct thread_data *td, struct job *job, unsigned int max)
{
	unsigned int found = 0, i, q;

	for (i = 0; i < job->lane_count && found < max; i++) {
		unsigned int at = job->look_next + i;
		struct lane *lane = job->lanes[at < job->lane_count ? at : at - job->lane_count];

		for (q = 0; lane && q < lane->queue_count && found < max; q++) {
			size_t count = 0, j;

			unvme_queue_poll(lane->queues[q], job->completions, max - found, &count);
			for (j = 0; j < count; j++) {
				const unvme_completion *done = &job->completions[j];
				struct io_u *io_u = (struct io_u *)(uintptr_t)done->token;

				if (done->result != KV_SUCCESS)
					note(td, io_u, done);
				job->events[found++] = io_u;
			}
		}
	}
	/* No device is always the last to be looked at. */
	if (++job->look_next >= job->lane_count)
		job->look_next = 0;
	return found;
}

/* Lets a job with one queue sleep, if that is how it waits; one with several looks at each in turn. */
static void rest(struct thread_data *td, struct job *job, unsigned int milliseconds)
{
	const struct options *o = td->eo;
	unsigned int i, q;

	if (o->completion == UNVME_COMPLETION_POLL)
		return;
	for (i = 0; i < job->lane_count; i++)
		for (q = 0; job->lanes[i] && q < job->lanes[i]->queue_count; q++) {
			unvme_queue *queue = job->lanes[i]->queues[q];
			bool is_only = job->lane_count == 1 && job->lanes[i]->queue_count == 1;

			if (unvme_queue_outstanding(queue))
				unvme_queue_wait(queue, is_only ? milliseconds : 1);
		}
}

/* Whether a job has no command whose completion could come. */
static bool is_idle(const struct job *job)
{
	unsigned int i, q;

	for (i = 0; i < job->lane_count; i++)
		for (q = 0; job->lanes[i] && q < job->lanes[i]->queue_count; q++)
			if (unvme_queue_outstanding(job->lanes[i]->queues[q]))
				return false;
	return true;
}

/* Waits for min completions, or for all outstanding commands where those are fewer. */
static int unvme_getevents(struct thread_data *td, unsigned int min, unsigned int max, const struct timespec *t)
{
	struct job *job = td->io_ops_data;
	uint64_t limit_us = t ? t->tv_sec * 1000000ull + t->tv_nsec / 1000 : 0;
	struct timespec start;
	unsigned int found;

	if (max > job->depth)
		max = job->depth;
	if (min > max)
		min = max;
	found = take(td, job, max);
	if (found >= min)
		return found;
	if (t)
		fio_gettime(&start, NULL);
	do {
		struct io_u **events = job->events;

		if (!found)
			rest(td, job, t ? limit_us / 1000 + 1 : 1000);
		job->events += found;
		found += take(td, job, max - found);
		job->events = events;
	} while (found < min && !is_idle(job) && (!t || utime_since_now(&start) < limit_us));
	return found;
}

static struct io_u *unvme_event(struct thread_data *td, int event)
{
	struct job *job = td->io_ops_data;

	return job->events[event];
}

/* What the device said, for the line that fio writes of an I/O error. */
static char *unvme_errdetails(struct io_u *io_u)
{
	const struct lane *lane = io_u->engine_data;
	const struct job *job = lane ? lane->job : NULL;
	const struct failure *failure = NULL;
	const char *advice = "";
	char *text = malloc(MESSAGE_MAX), status[128];
	unsigned int i;

	if (!text)
		return NULL;
	/* The last one first: an I/O can have failed before. */
	for (i = 0; job && i < job->depth && !failure; i++) {
		unsigned int at = (job->failure_next + job->depth - i) % job->depth;

		if (job->failures[at].io_u == io_u)
			failure = &job->failures[at];
	}
	if (failure && failure->status)
		unvme_status_name(failure->status, status, sizeof(status));
	else
		snprintf(status, sizeof(status), "%s",
			 failure ? unvme_result_name(failure->result) : strerror(io_u->error));
	if (failure && failure->result == KV_ERR_NOT_EXIST_KEY)
		advice = job->ignores_misses ? "; write the pairs first: with verify=, kv_read_miss=ignore ignores no miss"
					     : "; write the pairs first, or give kv_read_miss=ignore";
	snprintf(text, MESSAGE_MAX, "unvme: %s: the device answered %s%s", io_u->file->file_name, status, advice);
	return text;
}

#if HAS_FDP
/* The placement identifiers that fio chooses from. */
static int unvme_fetch_ruhs(struct thread_data *td, struct fio_file *f, struct fio_ruhs_info *info)
{
	struct options *o = td->eo;
	unvme_fdp_handle handles[PLACEMENTS_MAX];
	unsigned int nsid, room = info->nr_ruhs && info->nr_ruhs < PLACEMENTS_MAX ? info->nr_ruhs : PLACEMENTS_MAX;
	size_t count = 0, i;
	char *name = device_name(f->file_name, o, &nsid);
	struct device *device = name ? device_get(name, o) : NULL;
	int result = device ? unvme_fdp_status(device->handle, handles, room, &count) : KV_ERR_DD_NO_DEVICE;

	if (device && (result != KV_SUCCESS || !count))
		complain(name, "the namespace has no placement handles; enable Flexible Data Placement");
	for (i = 0; i < count && i < room; i++)
		info->plis[i] = handles[i].placement;
	info->nr_ruhs = i;
	if (device)
		device_put(device);
	free(name);
	return i ? 0 : -ENOTSUP;
}
#endif

/* Nothing has been issued with it: there is nothing to tell of a failure. */
static int unvme_io_u_init(struct thread_data fio_unused *td, struct io_u *io_u)
{
	io_u->engine_data = NULL;
	return 0;
}

/* Files are devices, which are open for as long as the job runs; those that a log adds, from here on. */
static int unvme_open_file(struct thread_data *td, struct fio_file *f)
{
	if (!lane_add(td, f->fileno, f))
		return 0;
	td_verror(td, ENODEV, "unvme open_file");
	return 1;
}

static int unvme_close_file(struct thread_data fio_unused *td, struct fio_file fio_unused *f)
{
	return 0;
}

static int unvme_invalidate(struct thread_data fio_unused *td, struct fio_file fio_unused *f)
{
	return 0;
}

struct ioengine_ops ioengine = {
	.name = "unvme",
	.version = FIO_IOOPS_VERSION,
	.flags = FIO_RAWIO | FIO_NOEXTEND | FIO_DISKLESSIO | FIO_NODISKUTIL | FIO_MEMALIGN,
	.setup = unvme_setup,
	.init = unvme_init,
	.io_u_init = unvme_io_u_init,
	.cleanup = unvme_cleanup,
	.queue = unvme_queue_io,
	.commit = unvme_commit,
	.getevents = unvme_getevents,
	.event = unvme_event,
	.errdetails = unvme_errdetails,
	.open_file = unvme_open_file,
	.close_file = unvme_close_file,
	.invalidate = unvme_invalidate,
	.unlink_file = unvme_close_file,
	.iomem_alloc = unvme_iomem_alloc,
	.iomem_free = unvme_iomem_free,
#if HAS_FDP
	.fdp_fetch_ruhs = unvme_fetch_ruhs,
#endif
	.options = options,
	.option_struct_size = sizeof(struct options),
};
