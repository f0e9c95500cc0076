#include "uri.h"

#include <algorithm>
#include <cstring>

#include "text.h"

namespace unvme_rocksdb {

namespace {

const char kScheme[] = "unvme://";
const char kKeys[] = "cache, policy, commit, ro, noatime, nsid, folder, placement, direct_reads, direct_writes, retain, "
                     "read_ahead, read_ahead_threshold";

/* none:0,short:1,...: each of some kinds of files, and an index among the placement handles of the device. */
std::string ParsePlacement(const std::string &text, unvme_fs_options *mount)
{
    static const char *const kinds[] = {"none", "short", "medium", "long", "extreme", "journal", "metadata"};
    if (text == "off") {
        mount->no_placement = true;
        return "";
    }
    mount->has_placement = true;
    for (uint16_t at = 0; at < 7; at++)
        mount->placement[at] = at;
    size_t from = 0;
    while (from <= text.size()) {
        size_t to = std::min(text.find(',', from), text.size());
        std::string pair = text.substr(from, to - from);
        size_t colon = pair.find(':');
        uint64_t handle = 0;
        size_t kind = 0;
        while (kind < 7 && pair.compare(0, colon, kinds[kind]) != 0)
            kind++;
        if (colon == std::string::npos || kind == 7 || !ParseNumber(pair.substr(colon + 1), 65535, &handle))
            return "placement=" + text + ": " + pair +
                   " is not KIND:INDEX with a KIND of none, short, medium, long, extreme, journal, metadata";
        mount->placement[kind] = (uint16_t)handle;
        from = to + 1;
    }
    return "";
}

std::string ParseOption(const std::string &key, const std::string &value, Uri *uri)
{
    uint64_t number = 0;
    bool is_right = true;
    const char *expected = "a number";

    if (key == "cache") {
        expected = "a size such as 512M or 4G, at least 1M, or 0 for none";
        is_right = ParseSize(value, &number) && (number == 0 || number >= 1 << 20);
        uri->mount.cache_bytes = number;
        if (is_right && number == 0)
            uri->mount.cache_policy = UNVME_FS_NO_CACHE;
    } else if (key == "policy") {
        expected = "s3fifo, lru or none";
        is_right = value == "s3fifo" || value == "lru" || value == "none";
        uri->mount.cache_policy = value == "lru" ? UNVME_FS_LRU : value == "none" ? UNVME_FS_NO_CACHE : UNVME_FS_S3FIFO;
    } else if (key == "commit") {
        expected = "milliseconds, from 1 on";
        is_right = ParseNumber(value, UINT32_MAX, &number) && number > 0;
        uri->mount.commit_ms = (uint32_t)number;
    } else if (key == "nsid") {
        expected = "the number of a namespace";
        is_right = ParseNumber(value, UINT32_MAX - 1, &number) && number > 0;
        uri->mount.nsid = (uint32_t)number;
    } else if (key == "folder") {
        uri->folder = value;
    } else if (key == "placement") {
        return ParsePlacement(value, &uri->mount);
    } else if (key == "ro" || key == "noatime" || key == "direct_reads" || key == "direct_writes" || key == "retain") {
        bool is_on = false;
        expected = "0 or 1";
        is_right = ParseBool(value, &is_on);
        if (key == "ro")
            uri->mount.read_only = is_on;
        else if (key == "noatime")
            uri->mount.no_access_times = is_on;
        else if (key == "direct_reads")
            uri->direct_reads = is_on;
        else if (key == "direct_writes")
            uri->direct_writes = is_on;
        else
            uri->retain = is_on;
    } else if (key == "read_ahead" || key == "read_ahead_threshold") {
        bool is_size = key == "read_ahead";
        expected = is_size ? "0, or 4K to 4M in steps of 4K" : "4K to 4M in steps of 4K";
        is_right = ParseSize(value, &number) && number % 4096 == 0 && number <= 4 << 20 && (is_size || number > 0);
        (is_size ? uri->read_ahead : uri->read_ahead_threshold) = (int)number;
    } else {
        return "there is no option " + key + "; there are " + kKeys;
    }
    return is_right ? "" : key + "=" + value + ": " + expected + " is expected";
}

} // namespace

std::string Uri::Parse(const std::string &text, Uri *uri)
{
    *uri = Uri();
    uri->text = text;
    uri->mount.size = sizeof uri->mount;
    if (text.compare(0, strlen(kScheme), kScheme) != 0)
        return "it does not begin with unvme://";
    size_t begin = strlen(kScheme);
    size_t question = text.find('?', begin);
    std::string place = text.substr(begin, question == std::string::npos ? question : question - begin);

    bool has_slashes = false;
    for (const char *kind : {"kernel:", "vfio-user:", "tcp:"})
        has_slashes = has_slashes || place.compare(0, strlen(kind), kind) == 0;
    size_t slash = has_slashes ? std::string::npos : place.find('/');
    uri->device = Decode(place.substr(0, slash));
    if (slash != std::string::npos)
        uri->folder = Decode(place.substr(slash + 1));
    if (uri->device.empty())
        return "the device is missing: unvme://DEVICE[/FOLDER][?OPTION=VALUE&...]";

    if (question != std::string::npos) {
        std::string wrong = EachOption(text.substr(question + 1), [uri](const std::string &key, const std::string &value) {
            return ParseOption(key, value, uri);
        });
        if (!wrong.empty())
            return wrong;
    }

    /* As it stands before paths that begin with a slash. */
    std::string folder;
    size_t from = 0;
    while (from < uri->folder.size()) {
        size_t to = std::min(uri->folder.find('/', from), uri->folder.size());
        if (to > from)
            folder += "/" + uri->folder.substr(from, to - from);
        from = to + 1;
    }
    uri->folder = folder;
    return "";
}

bool Uri::IsMountedAs(const Uri &other) const
{
    const unvme_fs_options &a = mount, &b = other.mount;
    return a.cache_bytes == b.cache_bytes && a.cache_policy == b.cache_policy && a.commit_ms == b.commit_ms &&
           a.read_only == b.read_only && a.no_access_times == b.no_access_times && a.no_placement == b.no_placement &&
           a.has_placement == b.has_placement && memcmp(a.placement, b.placement, sizeof a.placement) == 0;
}

} // namespace unvme_rocksdb
