#include <kv_apis.h>

#include "kv_database.h"

namespace unvme_rocksdb {

Status KvDatabase::MayRead(const ReadOptions &options, KvFamily *family, const Slice &key) const
{
    if (options.snapshot != nullptr || options.timestamp != nullptr)
        return Status::NotSupported("a read of a snapshot or a timestamp: a device has the newest values alone");
    if (options.read_tier == rocksdb::kBlockCacheTier)
        return Status::Incomplete("what is in memory alone is not asked for");
    if (family->is_dropped)
        return Status::InvalidArgument("the column family was dropped", family->name);
    if (KvPairs::IsHidden(key))
        return Status::NotFound();
    return pairs_.CheckKey(family, key);
}

std::vector<Status> KvDatabase::MultiGet(const ReadOptions &options, const std::vector<ColumnFamilyHandle *> &families,
                                         const std::vector<Slice> &keys, std::vector<std::string> *values)
{
    std::vector<Status> statuses(keys.size());
    std::vector<PinnableSlice> found(keys.size());
    std::vector<ColumnFamilyHandle *> handles = families;
    MultiGet(options, keys.size(), handles.data(), keys.data(), found.data(), statuses.data(), false);
    values->resize(keys.size());
    for (size_t at = 0; at < keys.size(); at++)
        (*values)[at] = found[at].ToString();
    return statuses;
}

void KvDatabase::MultiGetOf(const ReadOptions &options, KvFamily *family, size_t count, const Slice *keys,
                            PinnableSlice *values, Status *statuses)
{
    std::vector<Slice> wanted;
    std::vector<size_t> places;
    for (size_t at = 0; at < count; at++) {
        statuses[at] = MayRead(options, family, keys[at]);
        values[at].Reset();
        if (statuses[at].ok()) {
            wanted.push_back(keys[at]);
            places.push_back(at);
        }
    }
    pairs_.GetEach(family, wanted.data(), wanted.size(), [&](size_t at, const Status &status, const Slice &value) {
        statuses[places[at]] = status;
        if (status.ok())
            values[places[at]].PinSelf(value);
    });
    for (size_t at = 0; statistics_ != nullptr && at < count; at++)
        CountRead(statuses[at], values[at].size());
}

/* RocksDB creates and drops families of a database that is only read, too; ldb relies on it. */
Status KvDatabase::LockFamilies(std::unique_ptr<KvLock> *lock)
{
    if (!is_read_only_)
        return Status::OK();
    Status status = pairs_.Lock(place_, lock);
    return status.ok() ? FinishBatches() : status;
}

Status KvDatabase::CreateColumnFamily(const rocksdb::ColumnFamilyOptions &options, const std::string &name,
                                      ColumnFamilyHandle **handle)
{
    std::lock_guard<std::mutex> guard(families_mutex_);
    std::unique_ptr<KvLock> lock;
    Status status = LockFamilies(&lock);
    if (!status.ok())
        return status;
    if (options.comparator->timestamp_size() > 0)
        return NoTimestamps();
    if (name == rocksdb::kDefaultColumnFamilyName || (families_[1] != nullptr && families_[1]->name == name))
        return Status::InvalidArgument("Column family already exists", name);
    if (families_[1] != nullptr)
        return TooMany(families_[1]->name);
    status = CreateSecond(name);
    if (status.ok()) {
        families_.Set(std::make_shared<KvFamily>(name, 1, options));
        *handle = new KvFamilyHandle(families_.Shared(1));
    }
    return status;
}

Status KvDatabase::DropColumnFamily(ColumnFamilyHandle *handle)
{
    std::lock_guard<std::mutex> guard(families_mutex_);
    KvFamily *family = Of(handle);
    std::unique_ptr<KvLock> lock;
    Status status = LockFamilies(&lock);
    if (!status.ok())
        return status;
    if (family->keyspace == 0)
        return Status::InvalidArgument("Can't drop default column family");
    if (family->is_dropped.exchange(true))
        return Status::InvalidArgument("Column family already dropped!");
    families_.Drop(1);
    status = device_->Drain();
    if (status.ok())
        status = pairs_.DeleteHidden(KvPairs::HiddenKey(kFamily, 1));
    return status.ok() ? pairs_.Purge(1) : status;
}

bool KvDatabase::GetProperty(ColumnFamilyHandle *family, const Slice &property, std::string *value)
{
    uint64_t number = 0;
    if (GetIntProperty(family, property, &number)) {
        *value = std::to_string(number);
        return true;
    }
    if (property != DB::Properties::kStats)
        return false;
    KvCounters sum = device_->Sum();
    char text[256];
    snprintf(text, sizeof text,
             "** Pairs of %.64s **\nstores: %" PRIu64 ", retrieves: %" PRIu64 ", deletes: %" PRIu64 ", batches: %" PRIu64
             ", cache hits: %" PRIu64 "\n",
             place_.device.c_str(), sum.stores, sum.retrieves, sum.deletes, sum.batches, sum.cache_hits);
    *value = text;
    return true;
}

bool KvDatabase::GetIntProperty(ColumnFamilyHandle *family, const Slice &property, uint64_t *value)
{
    if (property == DB::Properties::kEstimateNumKeys) {
        *value = Of(family)->index.size();
        return Of(family)->index.IsComplete();
    }
    if (property == DB::Properties::kEstimateLiveDataSize || property == DB::Properties::kTotalSstFilesSize ||
        property == DB::Properties::kLiveSstFilesSize) {
        uint64_t used = kv_get_used_size(device_->handle()), bytes = kv_get_total_size(device_->handle());
        *value = (uint64_t)((double)bytes * (double)used / 10000);
        return used != UINT64_MAX && bytes != UINT64_MAX;
    }
    bool is_none = property == DB::Properties::kNumEntriesActiveMemTable || property == DB::Properties::kNumSnapshots ||
                   property == DB::Properties::kEstimatePendingCompactionBytes ||
                   property == DB::Properties::kNumRunningCompactions || property == DB::Properties::kNumRunningFlushes ||
                   property == DB::Properties::kMemTableFlushPending || property == DB::Properties::kCompactionPending;
    if (property == DB::Properties::kBackgroundErrors) {
        *value = !device_->Trouble().ok();
        return true;
    }
    *value = 0;
    return is_none;
}

Status KvFamilyHandle::GetDescriptor(rocksdb::ColumnFamilyDescriptor *descriptor)
{
    *descriptor = rocksdb::ColumnFamilyDescriptor(family->name, family->options);
    return Status::OK();
}

static Status OpenDeviceOf(const std::string &database, KvPlace *place, std::shared_ptr<KvDevice> *device)
{
    std::string wrong = KvPlace::Of(database, place);
    return wrong.empty() ? KvDevice::Open(*place, device) : Status::InvalidArgument(wrong);
}

Status OpenKvDatabase(const rocksdb::DBOptions &options, const std::string &name,
                      const std::vector<rocksdb::ColumnFamilyDescriptor> &families, bool is_read_only,
                      std::vector<ColumnFamilyHandle *> *handles, rocksdb::DB **database)
{
    *database = nullptr;
    KvPlace place;
    std::shared_ptr<KvDevice> device;
    Status status = OpenDeviceOf(name, &place, &device);
    if (!status.ok())
        return status;
    auto opened = std::make_unique<KvDatabase>(options, name, std::move(device), place, is_read_only);
    status = opened->Start(families, handles);
    if (status.ok())
        *database = opened.release();
    return status;
}

Status ListKvFamilies(const std::string &name, std::vector<std::string> *families)
{
    KvPlace place;
    std::shared_ptr<KvDevice> device;
    Status status = OpenDeviceOf(name, &place, &device);
    if (!status.ok())
        return status;
    families->assign(1, rocksdb::kDefaultColumnFamilyName);
    KvPairs pairs(device, nullptr);
    std::string second;
    status = pairs.GetHidden(KvPairs::HiddenKey(kFamily, 1), &second);
    if (status.ok())
        families->push_back(second);
    return status.IsNotFound() ? Status::OK() : status;
}

Status DestroyKvDatabase(const std::string &name)
{
    KvPlace place;
    std::shared_ptr<KvDevice> device;
    Status status = OpenDeviceOf(name, &place, &device);
    if (!status.ok())
        return status;
    KvPairs pairs(device, nullptr);
    std::unique_ptr<KvLock> lock;
    status = pairs.Lock(place, &lock);
    if (!status.ok())
        return status;
    device->Forgive();
    std::string second;
    status = pairs.GetHidden(KvPairs::HiddenKey(kFamily, 1), &second);
    bool has_second = status.ok();
    if (!has_second && !status.IsNotFound())
        return status;
    status = pairs.Purge(0);
    if (status.ok() && has_second)
        status = pairs.Purge(1);
    return status.ok() ? device->Flush() : status;
}

} // namespace unvme_rocksdb
