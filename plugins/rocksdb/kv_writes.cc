#include <algorithm>

#include "kv_database.h"

namespace unvme_rocksdb {

namespace {

/* The changes of a batch, whose memory they point into. */
class Collector final : public rocksdb::WriteBatch::Handler {
public:
    /* is_past: a family may have been dropped since. */
    Collector(const KvFamilies &families, bool is_past, std::vector<KvChange> *changes)
        : families_(families), is_past_(is_past), changes_(changes)
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
        KvFamily *family = families_[id];
        if (family == nullptr && is_past_)
            return Status::OK();
        if (family == nullptr)
            return Status::InvalidArgument("a batch has changes of a column family that is not there");
        changes_->push_back({kind, family, key, value});
        return Status::OK();
    }

    const KvFamilies &families_;
    const bool is_past_;
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
    return pairs_.Check(change.family, change.key, change.kind == KvChange::kPut ? change.value.size() : 0);
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
    if (updates == nullptr)
        return Status::InvalidArgument("Batch is nullptr!");
    thread_local std::vector<KvChange> changes;
    changes.clear();
    Collector collector(families_, false, &changes);
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
        status = ApplyAtOnce(changes, options, updates);
        /* On a full device there is no room to write down what makes room. */
        bool is_delete = std::all_of(changes.begin(), changes.end(), [](const KvChange &change) {
            return change.kind == KvChange::kDelete;
        });
        if (status.IsNoSpace() && is_delete) {
            status = pairs_.Apply(changes);
            if (status.ok() && options.sync)
                status = device_->Flush();
        }
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
Status KvDatabase::ApplyAtOnce(const std::vector<KvChange> &changes, const WriteOptions &options, rocksdb::WriteBatch *batch)
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
            KvFamilyHandle handle({std::shared_ptr<void>(), change.family});
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
    bool is_left = false;
    Status status = pairs_.ApplyWhole(changes, number, record, options.sync, &is_left);
    std::lock_guard<std::mutex> guard(batches_mutex_);
    (is_left ? left_batches_ : batches_).push_back(number);
    return status;
}

Status KvDatabase::Resume()
{
    std::lock_guard<std::mutex> guard(batches_mutex_);
    /* Whoever wrote these was told that it failed. */
    while (!left_batches_.empty()) {
        Status status = pairs_.DeleteHidden(KvPairs::HiddenKey(kBatch, left_batches_.back()));
        if (!status.ok())
            return status;
        batches_.push_back(left_batches_.back());
        left_batches_.pop_back();
    }
    device_->Forgive();
    return Status::OK();
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
        if (status.ok())
            status = pairs_.GetHidden(key, &record);
        if (!status.ok())
            return status;
        std::vector<KvChange> changes;
        rocksdb::WriteBatch batch(record);
        Collector collector(families_, true, &changes);
        status = batch.Iterate(&collector);
        for (size_t at = 0; status.ok() && at < changes.size(); at++) {
            const KvChange &change = changes[at];
            if (change.kind > KvChange::kDelete)
                status = Status::InvalidArgument("it has a change that is written down by nobody");
            else
                status = pairs_.Check(change.family, change.key, change.value.size());
        }
        if (!status.ok())
            return Status::Corruption(place_.device, "a batch that was interrupted makes no sense: " + status.ToString());
        status = pairs_.Apply(changes);
        /* Nobody was told that it is done: as one that fails it may be done in part, and must not be in the way. */
        if (status.IsNoSpace() || status.IsInvalidArgument()) {
            fprintf(stderr, "unvme: %s: a batch that was interrupted cannot be done: %s\n", place_.device.c_str(),
                    status.ToString().c_str());
            status = Status::OK();
        }
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
