/* The keys of a keyspace in order, which no device tells. */
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <rocksdb/comparator.h>
#include <rocksdb/slice.h>
#include <rocksdb/status.h>

namespace unvme_rocksdb {

/*
 * Leaves of some dozens of keys each, in a map by the least key that may be in them. A key takes its bytes,
 * two more, and its share of a leaf that is between a half and all full.
 *
 * It has every key that the device has, and may have some that the device has no longer: who looks for the
 * pairs finds out. Nobody needs the order before the first iterator, so until then there is none.
 */
class KeyIndex {
public:
    explicit KeyIndex(const rocksdb::Comparator *comparator) : comparator_(comparator), leaves_(Less{comparator}) {}

    /* Whether changes have to be told. Looked at under the mutex of a lane. */
    bool IsLive() const { return is_live_.load(std::memory_order_acquire); }
    bool IsComplete() const { return is_complete_.load(std::memory_order_acquire); }

    void Insert(const rocksdb::Slice &key);
    void Remove(const rocksdb::Slice &key);
    void Clear();
    size_t size() const { return size_.load(std::memory_order_relaxed); }

    /*
     * Fetches all keys unless they are there. settle waits for the changes that were begun before, list calls
     * with each key of the device.
     */
    rocksdb::Status Complete(const std::function<void()> &settle,
                             const std::function<rocksdb::Status(const std::function<void(const rocksdb::Slice &)> &)> &list);
    /* What it has can no longer be relied on: the next Complete() fetches it again. */
    std::atomic<bool> is_doubtful{false};

    /* Up to most keys in order, from a place on, or before it; a null place is the beginning, or the end. */
    void Forward(const rocksdb::Slice *from, bool is_from_included, size_t most, std::vector<std::string> *keys) const;
    void Backward(const rocksdb::Slice *from, bool is_from_included, size_t most, std::vector<std::string> *keys) const;

private:
    struct Leaf {
        std::string bytes;
        /* Where each key ends. */
        std::vector<uint16_t> ends;

        rocksdb::Slice at(size_t index) const;
        void Insert(size_t index, const rocksdb::Slice &key);
        void Remove(size_t index);
    };

    struct Less {
        const rocksdb::Comparator *comparator;
        using is_transparent = void;
        bool operator()(const std::string &a, const std::string &b) const { return comparator->Compare(a, b) < 0; }
        bool operator()(const std::string &a, const rocksdb::Slice &b) const { return comparator->Compare(a, b) < 0; }
        bool operator()(const rocksdb::Slice &a, const std::string &b) const { return comparator->Compare(a, b) < 0; }
    };
    using Leaves = std::map<std::string, std::unique_ptr<Leaf>, Less>;

    /* The first key in a leaf that is not before this one. */
    size_t Place(const Leaf &leaf, const rocksdb::Slice &key) const;
    bool IsAt(const Leaf &leaf, size_t index, const rocksdb::Slice &key) const;
    /* The leaf that a key belongs into, of at least one. */
    Leaves::const_iterator LeafOf(const rocksdb::Slice &key) const;

    const rocksdb::Comparator *const comparator_;
    mutable std::mutex mutex_;
    Leaves leaves_;
    std::atomic<size_t> size_{0};
    std::mutex completing_;
    std::atomic<bool> is_live_{false};
    std::atomic<bool> is_complete_{false};
};

} // namespace unvme_rocksdb
