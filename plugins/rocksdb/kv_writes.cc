#include <algorithm>

#include "kv_database.h"

namespace unvme_rocksdb {

namespace {

/* The changes of a batch, whose memory they point into. */
class Collector final : public rocksdb::WriteBatch::Handler {
public:
    Collector(const std::vector<std::shared_ptr<KvFamily>> &families, std::vector<KvChange> *changes)
        : families_(families), changes_(changes)
    {
    }

    Status PutCF(uint32_t id, const Slice &key, const Slice &value) override { return Add(KvChange::kPut, id, key, value); }
    Status DeleteCF(uint32_t id, const Slice &key) override { return Add(KvChange::kDelete, id, key, Slice()); }
    Status SingleDeleteCF(uint32_t id, const Slice &key) override { return Add(KvChange::kDelete, id, key, Slice()); }
    Status MergeCF(uint32_t id, const Slice &key, const Slice &value) override
    {
        return Add(KvChange::kMerge, id, key, value);
    }
    Status DeleteRangeCF(uint32_t id, const Slice &begin, const Slice &end) override
    {
        return Add(KvChange::kDeleteRange, id, begin, end);
    }
    void LogData(const Slice &) override {}

private:
    Status Add(KvChange::Kind kind, uint32_t id, const Slice &key, const Slice &value)
    {
        if (id >= families_.size() || families_[id] == nullptr || families_[id]->is_dropped)
            return Status::InvalidArgument("a batch has changes of a column family that is not there");
        changes_->push_back({kind, families_[id].get(), key, value});
        return Status::OK();
    }

    const std::vector<std::shared_ptr<KvFamily>> &families_;
    std::vector<KvChange> *const changes_;
};

} // namespace

Status KvDatabase::MayWrite(const KvChange &change) const
{
    if (is_read_only_)
        return Status::NotSupported("Not supported operation in read only mode.");
    if (change.family->is_dropped)
        return Status::InvalidArgument("the column family was dropped", change.family->name);
    if (change.kind == KvChange::kDeleteRange)
        return Status::OK();
    return pairs_.Check(change.key, change.kind == KvChange::kPut ? change.value.size() : 0);
}

/* One change, which may have to be of one pair. */
Status KvDatabase::Make(const KvChange &change, bool waits)
{
    switch (change.kind) {
    case KvChange::kPut:
        return pairs_.Put(change.family, change.key, change.value, waits);
    case KvChange::kDelete:
        return pairs_.Delete(change.family, change.key, waits);
    case KvChange::kMerge:
        return pairs_.Merge(change.family, change.key, change.value, options_.info_log.get());
    default:
        return RemoveRange(change);
    }
}

Status KvDatabase::Change(const WriteOptions &options, const KvChange &change)
{
    Status status = MayWrite(change);
    if (status.ok())
        status = device_->Trouble();
    if (status.ok())
        status = Make(change, options.sync || !place_.is_async);
    if (status.ok() && options.sync)
        status = device_->Flush();
    CountWrite(1, change.key.size() + change.value.size());
    return status;
}

Status KvDatabase::RemoveRange(const KvChange &change)
{
    const rocksdb::Comparator *comparator = change.family->options.comparator;
    if (comparator->Compare(change.key, change.value) > 0)
        return Status::InvalidArgument("end key comes before start key");
    Status status = pairs_.Order(change.family);
    std::string from = change.key.ToString();
    bool is_included = true;
    while (status.ok()) {
        std::vector<std::string> keys;
        Slice place = from;
        change.family->index.Forward(&place, is_included, 256, &keys);
        auto beyond = std::find_if(keys.begin(), keys.end(), [&](const std::string &key) {
            return comparator->Compare(key, change.value) >= 0;
        });
        keys.erase(beyond, keys.end());
        if (keys.empty())
            break;
        std::vector<KvChange> changes;
        for (const std::string &key : keys)
            changes.push_back({KvChange::kDelete, change.family, key, Slice()});
        status = pairs_.Apply(changes);
        from = keys.back();
        is_included = false;
    }
    return status;
}

Status KvDatabase::Write(const WriteOptions &options, rocksdb::WriteBatch *updates)
{
    std::vector<KvChange> changes;
    changes.reserve(updates->Count());
    std::vector<std::shared_ptr<KvFamily>> families;
    {
        std::lock_guard<std::mutex> guard(families_mutex_);
        families = families_;
    }
    Collector collector(families, &changes);
    Status status = updates->Iterate(&collector);
    bool is_simple = true;
    for (size_t at = 0; status.ok() && at < changes.size(); at++) {
        status = MayWrite(changes[at]);
        is_simple = is_simple && changes[at].kind <= KvChange::kDelete;
    }
    if (status.ok())
        status = device_->Trouble();
    if (!status.ok())
        return status;
    if (changes.size() > 1 && is_simple) {
        status = ApplyAtOnce(changes, families, options, updates);
    } else {
        for (size_t at = 0; status.ok() && at < changes.size(); at++)
            status = Make(changes[at], options.sync || !place_.is_async || changes.size() > 1);
        /* One without changes syncs what there was. */
        if (status.ok() && options.sync)
            status = device_->Flush();
    }
    CountWrite(changes.size(), updates->GetDataSize());
    return status;
}

/* All of them or none, even after a kill; in pieces when they are more than a pair can have. */
Status KvDatabase::ApplyAtOnce(const std::vector<KvChange> &changes, const std::vector<std::shared_ptr<KvFamily>> &families,
                               const WriteOptions &options, rocksdb::WriteBatch *batch)
{
    if (!place_.is_atomic) {
        Status status = pairs_.Apply(changes);
        return status.ok() && options.sync ? device_->Flush() : status;
    }
    size_t most = device_->info().value_bytes_max;
    if (batch->GetDataSize() <= most)
        return ApplyRecorded(changes, options, batch->Data());
    Status status;
    for (size_t begin = 0; status.ok() && begin < changes.size();) {
        rocksdb::WriteBatch piece;
        std::vector<KvChange> some;
        /* A change has its lengths and its family beside its key and its value. */
        while (begin < changes.size()) {
            const KvChange &change = changes[begin];
            if (!some.empty() && piece.GetDataSize() + change.key.size() + change.value.size() + 16 > most)
                break;
            KvFamilyHandle handle(families[change.family->keyspace]);
            status = change.kind == KvChange::kPut ? piece.Put(&handle, change.key, change.value)
                                                   : piece.Delete(&handle, change.key);
            some.push_back(change);
            begin++;
        }
        /* One value that is as long as can be has no room for more, and needs none. */
        status = some.size() == 1 ? Make(some[0], true) : ApplyRecorded(some, options, piece.Data());
    }
    return status.ok() && options.sync ? device_->Flush() : status;
}

Status KvDatabase::ApplyRecorded(const std::vector<KvChange> &changes, const WriteOptions &options, const Slice &record)
{
    uint32_t number;
    {
        std::lock_guard<std::mutex> guard(batches_mutex_);
        if (batches_.empty())
            batches_.push_back(next_batch_++);
        number = batches_.back();
        batches_.pop_back();
    }
    std::string key = KvPairs::HiddenKey(kBatch, number);
    Status status = pairs_.PutHidden(key, record);
    if (status.ok() && options.sync)
        status = device_->Flush();
    if (status.ok())
        status = pairs_.Apply(changes);
    /* The changes are durable before nobody knows of them any more. */
    if (status.ok() && options.sync)
        status = device_->Flush();
    Status forgotten = pairs_.DeleteHidden(key);
    {
        KvDevice::Hold lane(device_.get());
        lane->counters.batches++;
    }
    std::lock_guard<std::mutex> guard(batches_mutex_);
    batches_.push_back(number);
    return status.ok() ? forgotten : status;
}

/* Does what was interrupted. */
Status KvDatabase::FinishBatches()
{
    std::vector<std::string> keys;
    Status status = device_->List(0, KvPairs::HiddenPrefix(kBatch), [&](const Slice &key) {
        keys.push_back(key.ToString());
        return true;
    });
    for (const std::string &key : keys) {
        std::string record;
        status = pairs_.GetHidden(key, &record);
        if (!status.ok())
            return status;
        std::vector<KvChange> changes;
        rocksdb::WriteBatch batch(record);
        /* A family that was dropped meanwhile has no changes any more. */
        std::vector<std::shared_ptr<KvFamily>> families = families_;
        if (families[1] == nullptr)
            families[1] = std::make_shared<KvFamily>("", 1, rocksdb::ColumnFamilyOptions());
        Collector collector(families, &changes);
        status = batch.Iterate(&collector);
        if (!status.ok())
            return Status::Corruption(place_.device, "a batch that was interrupted makes no sense: " + status.ToString());
        status = pairs_.Apply(changes);
        if (status.ok())
            status = device_->Flush();
        if (status.ok())
            status = pairs_.DeleteHidden(key);
        if (!status.ok())
            return status;
    }
    return status;
}

} // namespace unvme_rocksdb
