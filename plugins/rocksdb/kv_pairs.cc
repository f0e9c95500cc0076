#include <algorithm>
#include <cstdio>
#include <cstring>
#include <random>

#include <rocksdb/merge_operator.h>

#include "kv_db.h"

using rocksdb::Slice;
using rocksdb::Status;

namespace unvme_rocksdb {

namespace {

/* Keys that begin so are not the application's. */
constexpr char kHidden[] = "\xff\xffunvme.kv/";

/* Commands that are on their way together. */
constexpr size_t kTogether = 32;

void DeleteCached(const Slice &, void *value)
{
    delete (std::string *)value;
}

/* The order of keys has lost one already that is still there. */
void NoteFailed(const KvChange &change)
{
    if (change.kind == KvChange::kDelete)
        change.family->index.is_doubtful.store(true);
}

unvme_command CommandOf(uint8_t verb, uint8_t keyspace, const Slice &key)
{
    unvme_command command = {};
    command.verb = verb;
    command.keyspace = keyspace;
    command.key = key.data();
    command.key_length = (uint16_t)key.size();
    return command;
}

std::string Kibibytes(uint64_t bytes)
{
    return std::to_string(bytes >> 10) + " KiB";
}

} // namespace

void KvFamily::Learn(size_t bytes)
{
    size_t expected = Expected();
    bytes = std::min(bytes, kMost);
    if (bytes > expected) {
        expected_.store(bytes, std::memory_order_relaxed);
        short_ones_.store(0, std::memory_order_relaxed);
    } else if (expected > kLeast && bytes < expected / 2) {
        longest_.store(std::max(bytes, longest_.load(std::memory_order_relaxed)), std::memory_order_relaxed);
        uint32_t count = short_ones_.load(std::memory_order_relaxed) + 1;
        if (count >= kShortOnes) {
            expected_.store(std::max(longest_.exchange(0, std::memory_order_relaxed), kLeast), std::memory_order_relaxed);
            count = 0;
        }
        short_ones_.store(count, std::memory_order_relaxed);
    }
}

KvPairs::KvPairs(std::shared_ptr<KvDevice> device, std::shared_ptr<rocksdb::Cache> cache)
    : device_(std::move(device)), cache_(std::move(cache)), cache_number_(cache_ == nullptr ? 0 : cache_->NewId()),
      hidden_("", 0, rocksdb::ColumnFamilyOptions())
{
}

Status KvPairs::CheckKey(const KvFamily *family, const Slice &key) const
{
    const unvme_queue_info &info = device_->info();
    const std::string &device = device_->place().device;
    /* The vendor's commands alone lead to the second keyspace. */
    bool is_vendor = family->keyspace > 0 || device_->place().commands == UNVME_PAIRS_VENDOR;
    size_t least = std::max<size_t>(info.key_length_min, is_vendor ? KV_MIN_KEY_LEN : 0);
    if (key.size() < least || key.size() > info.key_length_max)
        return Status::InvalidArgument(device, "a key of " + std::to_string(key.size()) + " bytes: the device takes " +
                                                   std::to_string(least) + " to " + std::to_string(info.key_length_max));
    return Status::OK();
}

Status KvPairs::Check(const KvFamily *family, const Slice &key, size_t value_bytes) const
{
    const unvme_queue_info &info = device_->info();
    const std::string &device = device_->place().device;
    Status status = CheckKey(family, key);
    if (!status.ok())
        return status;
    if (value_bytes > info.value_bytes_max)
        return Status::InvalidArgument(device, "a value of " + std::to_string(value_bytes) +
                                                   " bytes: the device takes at most " + Kibibytes(info.value_bytes_max));
    if (IsHidden(key))
        return Status::InvalidArgument(device, "keys that begin with FF FF 'unvme.kv/' are kept for the database itself");
    return Status::OK();
}

std::string KvPairs::CacheKey(KvFamily *family, const Slice &key) const
{
    std::string name((const char *)&cache_number_, sizeof cache_number_);
    name += (char)family->keyspace;
    name.append(key.data(), key.size());
    return name;
}

/* An operation on a pair that nobody else changes: somebody holds its stripe for long, or it does itself. */
uint32_t KvPairs::Begin(Lane *lane, KvFamily *family, const Slice &key, bool is_held)
{
    uint32_t number = lane->Take();
    if (!is_held) {
        Stripe *stripe = device_->StripeOf(family->keyspace, key);
        lane->Acquire(stripe);
        lane->at(number).stripe = stripe;
    }
    if (cache_ != nullptr)
        cache_->Erase(CacheKey(family, key));
    return number;
}

Status KvPairs::SendChange(Lane *lane, const KvChange &change, bool waits, bool is_held, uint32_t *number)
{
    KvFamily *family = change.family;
    bool is_put = change.kind == KvChange::kPut;
    *number = Begin(lane, family, change.key, is_held);
    if (family->index.IsLive()) {
        if (is_put)
            family->index.Insert(change.key);
        else
            family->index.Remove(change.key);
    }
    Operation &operation = lane->at(*number);
    operation.is_left = !waits;
    operation.failed = is_put ? nullptr : &family->index.is_doubtful;
    unvme_command command = CommandOf(is_put ? UNVME_STORE : UNVME_DELETE, family->keyspace, change.key);
    if (is_put) {
        command.length = change.value.size();
        command.data = (void *)change.value.data();
        if (!waits && change.value.size() > 0) {
            /* The caller's memory is the caller's again. */
            if (!lane->Reserve(*number, change.value.size())) {
                if (operation.stripe != nullptr)
                    operation.stripe->store(nullptr);
                return Status::MemoryLimit("memory for a value that is on its way");
            }
            memcpy(operation.buffer, change.value.data(), change.value.size());
            command.data = operation.buffer;
        }
    }
    (is_put ? lane->counters.stores : lane->counters.deletes)++;
    return lane->Send(*number, &command);
}

Status KvPairs::Change(const KvChange &change, bool waits)
{
    KvDevice::Hold lane(device_.get());
    uint32_t number;
    Status status = SendChange(lane.get(), change, waits, false, &number);
    bool is_sent = status.ok();
    if (is_sent && waits)
        status = lane->Await(number);
    if (!is_sent || waits)
        lane->Release(number);
    else
        lane->Ring();
    if (!status.ok())
        NoteFailed(change);
    return status;
}

Status KvPairs::Put(KvFamily *family, const Slice &key, const Slice &value, bool waits)
{
    return Change({KvChange::kPut, family, key, value}, waits);
}

Status KvPairs::Delete(KvFamily *family, const Slice &key, bool waits)
{
    return Change({KvChange::kDelete, family, key, Slice()}, waits);
}

Status KvPairs::Apply(const std::vector<KvChange> &changes)
{
    KvDevice::Hold lane(device_.get());
    return ApplyOn(lane.get(), changes, false);
}

Status KvPairs::ApplyOn(Lane *lane, const std::vector<KvChange> &changes, bool is_held)
{
    Status first;
    for (size_t begin = 0; begin < changes.size(); begin += kTogether) {
        uint32_t numbers[kTogether];
        size_t count = std::min(kTogether, changes.size() - begin), sent = 0;
        /* As many as there are operations; the others wait for their turn. */
        while (first.ok() && sent < count) {
            size_t done = sent;
            for (; first.ok() && sent < count && (sent == done || lane->HasFree()); sent++) {
                Status status = SendChange(lane, changes[begin + sent], true, is_held, &numbers[sent]);
                if (!status.ok()) {
                    lane->Release(numbers[sent]);
                    numbers[sent] = UINT32_MAX;
                    first = status;
                    NoteFailed(changes[begin + sent]);
                }
            }
            for (; done < sent; done++) {
                if (numbers[done] == UINT32_MAX)
                    continue;
                Status status = lane->Await(numbers[done]);
                lane->Release(numbers[done]);
                if (!status.ok())
                    NoteFailed(changes[begin + done]);
                first = first.ok() ? status : first;
            }
        }
        if (!first.ok())
            break;
    }
    return first;
}

/* Nobody else changes these pairs before the record is gone: it would bring back what was there before. */
Status KvPairs::ApplyWhole(const std::vector<KvChange> &changes, uint32_t number, const Slice &record, bool is_synced,
                           bool *is_left)
{
    *is_left = false;
    /* What was written before is durable as well. */
    Status status = is_synced ? device_->Drain() : Status::OK();
    if (!status.ok())
        return status;
    std::vector<Stripe *> stripes;
    for (const KvChange &change : changes)
        stripes.push_back(device_->StripeOf(change.family->keyspace, change.key));
    /* All who take several take them in one order, and have their lane until they are done. */
    std::sort(stripes.begin(), stripes.end());
    stripes.erase(std::unique(stripes.begin(), stripes.end()), stripes.end());
    const std::string key = HiddenKey(kBatch, number);
    unvme_command command = CommandOf(UNVME_STORE, 0, key), flush = {};
    flush.verb = UNVME_FLUSH;
    command.data = (void *)record.data();
    command.length = record.size();
    KvDevice::Hold lane(device_.get());
    for (Stripe *stripe : stripes)
        lane->Acquire(stripe);
    status = lane->Run(&command);
    bool is_recorded = status.ok();
    if (status.ok() && is_synced)
        status = lane->Run(&flush);
    if (status.ok())
        status = ApplyOn(lane.get(), changes, true);
    /* The changes are durable before nobody knows of them any more. */
    if (status.ok() && is_synced)
        status = lane->Run(&flush);
    if (is_recorded) {
        command.verb = UNVME_DELETE;
        command.length = 0;
        command.data = nullptr;
        Status forgotten = lane->Run(&command);
        /* Then nothing may be written any more: it would be undone when the database is opened. */
        *is_left = !forgotten.ok();
        if (*is_left)
            device_->SetTrouble(forgotten);
        status = status.ok() ? forgotten : status;
    }
    lane->counters.batches++;
    for (Stripe *stripe : stripes)
        stripe->store(nullptr, std::memory_order_release);
    return status;
}

/* Retrieves a value whole into the memory of an operation, which is taken and stays so. */
Status KvPairs::Fetch(Lane *lane, KvFamily *family, const Slice &key, uint32_t number)
{
    size_t wanted = family->Expected();
    for (;;) {
        if (!lane->Reserve(number, wanted))
            return Status::MemoryLimit("memory for a value of " + std::to_string(wanted) + " bytes");
        Operation &operation = lane->at(number);
        unvme_command command = CommandOf(UNVME_RETRIEVE, family->keyspace, key);
        command.length = std::min<uint64_t>(operation.capacity, std::max<uint64_t>(device_->info().value_bytes_max, 4096));
        command.data = operation.buffer;
        size_t asked = command.length;
        lane->counters.retrieves++;
        Status status = lane->Send(number, &command);
        if (status.ok())
            status = lane->Await(number);
        if (!status.ok())
            return status;
        family->Learn(operation.value_bytes);
        if (operation.value_bytes <= asked)
            return status;
        if (operation.value_bytes > std::max<uint64_t>(device_->info().value_bytes_max, asked))
            return Status::NotSupported(device_->place().device, "a value of " + std::to_string(operation.value_bytes) +
                                                                     " bytes is more than a command retrieves");
        wanted = operation.value_bytes;
        lane->Retake(number);
    }
}

bool KvPairs::GetCached(KvFamily *family, const Slice &key, const std::function<void(const Slice &)> &take)
{
    rocksdb::Cache::Handle *handle = cache_->Lookup(CacheKey(family, key));
    if (handle == nullptr)
        return false;
    take(*(const std::string *)cache_->Value(handle));
    cache_->Release(handle);
    return true;
}

Status KvPairs::Get(KvFamily *family, const Slice &key, const std::function<void(const Slice &)> &take)
{
    if (cache_ != nullptr && GetCached(family, key, take)) {
        KvDevice::Hold lane(device_.get());
        lane->counters.cache_hits++;
        return Status::OK();
    }
    KvDevice::Hold lane(device_.get());
    uint32_t number = lane->Take();
    Stripe *stripe = nullptr;
    if (cache_ != nullptr || device_->HasAsync()) {
        stripe = device_->StripeOf(family->keyspace, key);
        if (cache_ != nullptr)
            lane->Acquire(stripe);
        else
            lane->AwaitFree(stripe);
    }
    Status status = Fetch(lane.get(), family, key, number);
    Slice value;
    if (status.ok())
        value = Slice(lane->at(number).buffer, lane->at(number).value_bytes);
    if (cache_ != nullptr) {
        /* Nobody changes it before it is in the cache. */
        if (status.ok())
            cache_->Insert(CacheKey(family, key), new std::string(value.data(), value.size()), value.size() + key.size(),
                           DeleteCached);
        stripe->store(nullptr, std::memory_order_release);
    }
    if (status.ok())
        take(value);
    lane->Release(number);
    return status;
}

void KvPairs::GetEach(KvFamily *family, const Slice *keys, size_t count,
                      const std::function<void(size_t, const Status &, const Slice &)> &take)
{
    if (cache_ != nullptr || count == 1) {
        for (size_t at = 0; at < count; at++) {
            Status status = Get(family, keys[at], [&](const Slice &value) { take(at, Status::OK(), value); });
            if (!status.ok())
                take(at, status, Slice());
        }
        return;
    }
    KvDevice::Hold lane(device_.get());
    for (size_t begin = 0; begin < count;) {
        uint32_t numbers[kTogether];
        Status sent[kTogether];
        size_t together = 0, asked = family->Expected();
        while (together < kTogether && begin + together < count && (together == 0 || lane->HasFree())) {
            const Slice &key = keys[begin + together];
            uint32_t number = numbers[together] = lane->Take();
            if (device_->HasAsync())
                lane->AwaitFree(device_->StripeOf(family->keyspace, key));
            unvme_command command = CommandOf(UNVME_RETRIEVE, family->keyspace, key);
            command.length = asked;
            bool has_memory = lane->Reserve(number, asked);
            command.data = lane->at(number).buffer;
            sent[together++] = has_memory ? lane->Send(number, &command) : Status::MemoryLimit("memory for values");
            lane->counters.retrieves++;
        }
        for (size_t at = 0; at < together; at++) {
            Operation &operation = lane->at(numbers[at]);
            Status status = sent[at].ok() ? lane->Await(numbers[at]) : sent[at];
            if (status.ok())
                family->Learn(operation.value_bytes);
            if (status.ok() && operation.value_bytes > asked) {
                /* It is longer than those before. */
                lane->Retake(numbers[at]);
                status = Fetch(lane.get(), family, keys[begin + at], numbers[at]);
            }
            take(begin + at, status, status.ok() ? Slice(operation.buffer, operation.value_bytes) : Slice());
            lane->Release(numbers[at]);
        }
        begin += together;
    }
}

Status KvPairs::Merge(KvFamily *family, const Slice &key, const Slice &operand, rocksdb::Logger *logger)
{
    const rocksdb::MergeOperator *merge = family->options.merge_operator.get();
    if (merge == nullptr)
        return Status::InvalidArgument("Merge: the options have no merge_operator");
    KvDevice::Hold lane(device_.get());
    uint32_t number = Begin(lane.get(), family, key, false);
    Stripe *stripe = lane->at(number).stripe;
    lane->at(number).stripe = nullptr;
    Status status = Fetch(lane.get(), family, key, number);
    Slice existing;
    bool exists = status.ok();
    if (exists)
        existing = Slice(lane->at(number).buffer, lane->at(number).value_bytes);
    std::string result;
    if (status.ok() || status.IsNotFound()) {
        std::vector<Slice> operands{operand};
        Slice whole(nullptr, 0);
        rocksdb::MergeOperator::MergeOperationInput in(key, exists ? &existing : nullptr, operands, logger);
        rocksdb::MergeOperator::MergeOperationOutput out(result, whole);
        status = merge->FullMergeV2(in, &out) ? Status::OK() : Status::Corruption("the merge operator has failed");
        if (whole.data() != nullptr)
            result.assign(whole.data(), whole.size());
    }
    if (status.ok())
        status = Check(family, key, result.size());
    if (status.ok()) {
        if (family->index.IsLive())
            family->index.Insert(key);
        unvme_command command = CommandOf(UNVME_STORE, family->keyspace, key);
        command.length = result.size();
        command.data = (void *)result.data();
        lane->counters.stores++;
        lane->Retake(number);
        status = lane->Send(number, &command);
        if (status.ok())
            status = lane->Await(number);
    }
    stripe->store(nullptr, std::memory_order_release);
    lane->Release(number);
    return status;
}

Status KvPairs::Order(KvFamily *family)
{
    if (family->is_dropped)
        return Status::InvalidArgument("the column family was dropped", family->name);
    auto settle = [this] { device_->Settle(); };
    auto list = [this, family](const std::function<void(const Slice &)> &insert) {
        return device_->List(family->keyspace, Slice(), [&](const Slice &key) {
            /* Those that are none of ours stay out, whatever their length. */
            if (!IsHidden(key) && CheckKey(family, key).ok())
                insert(key);
            return true;
        });
    };
    return family->index.Complete(settle, list);
}

void KvPairs::Forget(KvFamily *family, const Slice &key)
{
    KvDevice::Hold lane(device_.get());
    uint32_t number = Begin(lane.get(), family, key, false);
    Stripe *stripe = lane->at(number).stripe;
    lane->at(number).stripe = nullptr;
    if (Fetch(lane.get(), family, key, number).IsNotFound())
        family->index.Remove(key);
    stripe->store(nullptr, std::memory_order_release);
    lane->Release(number);
}

Status KvPairs::Probe(uint8_t keyspace)
{
    std::string key = HiddenKey('?', 0);
    unvme_command command = CommandOf(UNVME_EXIST, keyspace, key);
    KvDevice::Hold lane(device_.get());
    Status status = lane->Run(&command);
    if (status.ok() || status.IsNotFound())
        return Status::OK();
    return Status::NotSupported("a second column family", status.ToString());
}

Status KvPairs::Purge(uint8_t keyspace)
{
    KvFamily family("", keyspace, rocksdb::ColumnFamilyOptions());
    const std::string name = HiddenKey(kName, 0);
    for (;;) {
        std::vector<std::string> keys;
        Status status = device_->List(keyspace, Slice(), [&](const Slice &key) {
            if (key != name && CheckKey(&family, key).ok())
                keys.push_back(key.ToString());
            return keys.size() < 1 << 20;
        });
        if (!status.ok() || keys.empty())
            return status;
        std::vector<KvChange> changes;
        for (const std::string &key : keys)
            changes.push_back({KvChange::kDelete, &family, key, Slice()});
        status = Apply(changes);
        if (!status.ok())
            return status;
    }
}

std::string KvPairs::HiddenPrefix(char kind)
{
    return std::string(kHidden) + kind;
}

std::string KvPairs::HiddenKey(char kind, uint32_t number)
{
    char text[8];
    snprintf(text, sizeof text, "%04u", number % 10000);
    return HiddenPrefix(kind) + text;
}

bool KvPairs::IsHidden(const Slice &key)
{
    return key.starts_with(kHidden);
}

Status KvPairs::GetHidden(const std::string &key, std::string *value)
{
    KvDevice::Hold lane(device_.get());
    uint32_t number = lane->Take();
    Status status = Fetch(lane.get(), &hidden_, key, number);
    if (status.ok())
        value->assign(lane->at(number).buffer, lane->at(number).value_bytes);
    lane->Release(number);
    return status;
}

Status KvPairs::PutHidden(const std::string &key, const Slice &value)
{
    return Put(&hidden_, key, value, true);
}

Status KvPairs::DeleteHidden(const std::string &key)
{
    return Delete(&hidden_, key, true);
}

Status KvPairs::Lock(const KvPlace &place, std::unique_ptr<KvLock> *lock)
{
    if (device_->IsInMemory())
        return KvLock::Take(place, "", lock);
    const std::string key = HiddenKey(kName, 0);
    std::string name;
    Status status = GetHidden(key, &name);
    if (status.IsNotFound()) {
        std::random_device random;
        char text[40];
        snprintf(text, sizeof text, "%08x%08x%08x%08x", random(), random(), random(), random());
        unvme_command command = CommandOf(UNVME_STORE, 0, key);
        command.flags = UNVME_MUST_NOT_EXIST;
        command.data = text;
        command.length = 32;
        Status stored;
        {
            KvDevice::Hold lane(device_.get());
            stored = lane->Run(&command);
        }
        /* Another process may have been first: then that name it is. */
        status = GetHidden(key, &name);
        if (status.IsNotFound() && !stored.ok())
            return stored;
    }
    if (!status.ok())
        return status;
    if (name.size() != 32 || name.find_first_not_of("0123456789abcdef") != std::string::npos)
        return Status::Corruption(place.device, "the database's own name makes no sense");
    return KvLock::Take(place, name, lock);
}

} // namespace unvme_rocksdb
