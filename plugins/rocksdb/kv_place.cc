#include "kv_place.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>

#include <dlfcn.h>
#include <kv_apis.h>
#include <unistd.h>
#include <unvme.h>

#include "text.h"

namespace unvme_rocksdb {

namespace {

const char kScheme[] = "unvme-kv://";
const char kVariable[] = "UNVME_KV_ROCKSDB";
const char kConfiguration[] = "kv_sdk_sync_config.json";
const char kKeys[] = "async, atomic, cache, commands, completion, depth";

/* One of a few words, by its place among them. */
bool ParseWord(const std::string &text, std::initializer_list<const char *> words, uint8_t *number)
{
    auto found = std::find(words.begin(), words.end(), text);
    *number = (uint8_t)(found - words.begin());
    return found != words.end();
}

std::string ParseOption(const std::string &key, const std::string &value, KvPlace *place)
{
    uint64_t number = 0;
    bool is_right = true;
    const char *expected = "0 or 1";

    if (key == "async") {
        is_right = ParseBool(value, &place->is_async);
    } else if (key == "atomic") {
        is_right = ParseBool(value, &place->is_atomic);
    } else if (key == "cache") {
        expected = "a size such as 512M or 4G, or 0 for none";
        is_right = ParseSize(value, &place->cache_bytes);
    } else if (key == "commands") {
        expected = "any, standard or vendor";
        is_right = ParseWord(value, {"any", "standard", "vendor"}, &place->commands);
    } else if (key == "completion") {
        expected = "poll, interrupt or hybrid";
        is_right = ParseWord(value, {"poll", "interrupt", "hybrid"}, &place->completion);
    } else if (key == "depth") {
        expected = "1 to 4095";
        is_right = ParseNumber(value, 4095, &number) && number > 0;
        place->depth = (uint32_t)number;
    } else {
        return "there is no option " + key + "; there are " + kKeys;
    }
    return is_right ? "" : key + "=" + value + ": " + expected + " is expected";
}

/* What a configuration of the uNVMe SDK says. */
std::string OfConfiguration(KvPlace *place)
{
    auto options = std::make_unique<kv_sdk>();
    memset(options.get(), 0, sizeof *options);
    char path[sizeof kConfiguration];
    memcpy(path, kConfiguration, sizeof path);
    if (kv_sdk_load_option(options.get(), path) != KV_SUCCESS)
        return std::string(path) + ": " + unvme_last_error();
    if (options->ssd_type != KV_TYPE_SSD)
        return std::string(path) + ": ssd_type lba: a database of pairs needs a device of type kv";
    place->device = std::string(options->dev_id[0], strnlen(options->dev_id[0], DEV_ID_LEN));
    place->text = place->device;
    if (options->use_cache)
        place->cache_bytes = options->slab_size > 0 ? options->slab_size : 512 << 20;
    return "";
}

/* What the flag of kv_db_bench says, where there are such flags. */
bool IsAsyncByFlag()
{
    auto flag = (bool (*)())dlsym(RTLD_DEFAULT, "unvme_kv_async");
    return flag != nullptr && flag();
}

} // namespace

std::string KvPlace::Parse(const std::string &text, KvPlace *place)
{
    *place = KvPlace();
    place->text = text;
    size_t question = text.find('?');
    place->device = Decode(text.substr(0, question));
    if (place->device.empty())
        return "the device is missing: DEVICE[?OPTION=VALUE&...] is expected";
    if (question == std::string::npos)
        return "";
    return EachOption(text.substr(question + 1), [place](const std::string &key, const std::string &value) {
        return ParseOption(key, value, place);
    });
}

std::string KvPlace::Of(const std::string &database, KvPlace *place)
{
    std::string wrong;
    const char *variable = getenv(kVariable);
    *place = KvPlace();
    if (database.compare(0, strlen(kScheme), kScheme) == 0) {
        wrong = Parse(database.substr(strlen(kScheme)), place);
        wrong = wrong.empty() ? "" : database + ": " + wrong;
    } else if (variable != nullptr && *variable != 0) {
        wrong = Parse(variable, place);
        wrong = wrong.empty() ? "" : std::string(kVariable) + "=" + variable + ": " + wrong;
    } else if (access(kConfiguration, F_OK) == 0) {
        wrong = OfConfiguration(place);
    } else {
        wrong = std::string("which device? Neither ") + kVariable + "=DEVICE nor " + kConfiguration +
                " in the working directory says it, nor does the database's name: " + kScheme + "DEVICE";
    }
    place->is_async = place->is_async || IsAsyncByFlag();
    return wrong;
}

} // namespace unvme_rocksdb
