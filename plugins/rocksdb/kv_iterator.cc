#include <algorithm>

#include <rocksdb/iterator.h>
#include <rocksdb/slice_transform.h>
#include <rocksdb/wide_columns.h>

#include "kv_db.h"

using rocksdb::Slice;
using rocksdb::Status;

namespace unvme_rocksdb {

namespace {

/* Pairs that are fetched ahead at most: as many as are asked for at once. */
constexpr size_t kMostAhead = 32;

struct Pair {
    std::string key;
    std::string value;
};

/*
 * Walks over the order of the keys and fetches pairs ahead, the more of them the longer it goes in one
 * direction.
 */
class KvIterator final : public rocksdb::Iterator {
public:
    KvIterator(KvPairs *pairs, std::shared_ptr<KvFamily> family, const rocksdb::ReadOptions &options)
        : pairs_(pairs), family_(std::move(family)), comparator_(family_->options.comparator)
    {
        if (options.iterate_lower_bound != nullptr)
            lower_ = std::make_unique<std::string>(options.iterate_lower_bound->ToString());
        if (options.iterate_upper_bound != nullptr)
            upper_ = std::make_unique<std::string>(options.iterate_upper_bound->ToString());
        if (options.prefix_same_as_start)
            transform_ = family_->options.prefix_extractor;
    }

    bool Valid() const override { return at_ < window_.size() && status_.ok(); }
    Status status() const override { return status_; }
    Slice key() const override { return window_[at_].key; }
    Slice value() const override { return window_[at_].value; }

    const rocksdb::WideColumns &columns() const override
    {
        columns_ = {{rocksdb::kDefaultWideColumnName, value()}};
        return columns_;
    }

    void SeekToFirst() override
    {
        prefix_.reset();
        Slice bound = lower_ != nullptr ? *lower_ : Slice();
        Begin(true, lower_ != nullptr ? &bound : nullptr, true);
    }

    void SeekToLast() override
    {
        prefix_.reset();
        Slice bound = upper_ != nullptr ? *upper_ : Slice();
        Begin(false, upper_ != nullptr ? &bound : nullptr, false);
    }

    void Seek(const Slice &target) override
    {
        KeepPrefix(target);
        Slice from = target;
        if (lower_ != nullptr && comparator_->Compare(target, *lower_) < 0)
            from = *lower_;
        Begin(true, &from, true);
    }

    void SeekForPrev(const Slice &target) override
    {
        KeepPrefix(target);
        bool is_beyond = upper_ != nullptr && comparator_->Compare(target, *upper_) >= 0;
        Slice from = is_beyond ? Slice(*upper_) : target;
        Begin(false, &from, !is_beyond);
    }

    void Next() override { Step(true); }
    void Prev() override { Step(false); }

    /* It always looks at the device as it is. */
    Status Refresh() override { return Status::OK(); }

    Status GetProperty(std::string name, std::string *value) override
    {
        if (name != "rocksdb.iterator.is-key-pinned" && name != "rocksdb.iterator.super-version-number")
            return Status::InvalidArgument("there is no property " + name);
        *value = "0";
        return Status::OK();
    }

private:
    void KeepPrefix(const Slice &target)
    {
        prefix_.reset();
        if (transform_ != nullptr && transform_->InDomain(target))
            prefix_ = std::make_unique<std::string>(transform_->Transform(target).ToString());
    }

    bool IsWithin(const Slice &key) const
    {
        if (upper_ != nullptr && comparator_->Compare(key, *upper_) >= 0)
            return false;
        if (lower_ != nullptr && comparator_->Compare(key, *lower_) < 0)
            return false;
        return prefix_ == nullptr || (transform_->InDomain(key) && transform_->Transform(key) == Slice(*prefix_));
    }

    void Begin(bool is_forward, const Slice *from, bool is_included)
    {
        status_ = pairs_->Order(family_.get());
        is_forward_ = is_forward;
        ahead_ = 1;
        window_.clear();
        at_ = 0;
        if (status_.ok())
            Fill(from, is_included);
    }

    void Step(bool is_forward)
    {
        if (is_forward == is_forward_ && at_ + 1 < window_.size()) {
            at_++;
            return;
        }
        std::string last = std::move(window_[at_].key);
        Slice from = last;
        ahead_ = is_forward == is_forward_ ? std::min(2 * ahead_, kMostAhead) : 1;
        is_forward_ = is_forward;
        Fill(&from, false);
    }

    /* The pairs from a place on, without those that are no more; none is the end. */
    void Fill(const Slice *from, bool is_included)
    {
        std::string last;
        Slice place;
        do {
            window_.clear();
            at_ = 0;
            keys_.clear();
            if (is_forward_)
                family_->index.Forward(from, is_included, ahead_, &keys_);
            else
                family_->index.Backward(from, is_included, ahead_, &keys_);
            bool is_end = keys_.size() < ahead_;
            auto beyond = std::find_if(keys_.begin(), keys_.end(), [this](const std::string &key) { return !IsWithin(key); });
            is_end = is_end || beyond != keys_.end();
            keys_.erase(beyond, keys_.end());
            if (keys_.empty())
                return;
            Fetch();
            if (is_end || !status_.ok())
                return;
            last = std::move(keys_.back());
            place = last;
            from = &place;
            is_included = false;
        } while (window_.empty());
    }

    void Fetch()
    {
        std::vector<Slice> slices(keys_.begin(), keys_.end());
        std::vector<const std::string *> gone;
        pairs_->GetEach(family_.get(), slices.data(), slices.size(),
                        [&](size_t at, const Status &status, const Slice &value) {
                            if (status.ok())
                                window_.push_back({keys_[at], value.ToString()});
                            else if (status.IsNotFound())
                                gone.push_back(&keys_[at]);
                            else
                                status_ = status;
                        });
        for (const std::string *key : gone)
            pairs_->Forget(family_.get(), *key);
    }

    KvPairs *const pairs_;
    const std::shared_ptr<KvFamily> family_;
    const rocksdb::Comparator *const comparator_;
    std::unique_ptr<std::string> lower_, upper_, prefix_;
    std::shared_ptr<const rocksdb::SliceTransform> transform_;
    bool is_forward_ = true;
    size_t ahead_ = 1;
    std::vector<std::string> keys_;
    std::vector<Pair> window_;
    size_t at_ = 0;
    Status status_;
    mutable rocksdb::WideColumns columns_;
};

} // namespace

rocksdb::Iterator *NewKvIterator(KvPairs *pairs, std::shared_ptr<KvFamily> family, const rocksdb::ReadOptions &options)
{
    if (options.snapshot != nullptr || options.timestamp != nullptr)
        return rocksdb::NewErrorIterator(
            Status::NotSupported("an iterator of a snapshot or a timestamp: a device has the newest values alone"));
    return new KvIterator(pairs, std::move(family), options);
}

} // namespace unvme_rocksdb
