#include "kv_index.h"

#include <algorithm>
#include <cstring>

using rocksdb::Slice;
using rocksdb::Status;

namespace unvme_rocksdb {

namespace {

/* Keys of a leaf: with the longest ones, their ends are below 65536. */
constexpr size_t kLeafKeys = 128;

} // namespace

Slice KeyIndex::Leaf::at(size_t index) const
{
    size_t begin = index == 0 ? 0 : ends[index - 1];
    return Slice(bytes.data() + begin, ends[index] - begin);
}

void KeyIndex::Leaf::Insert(size_t index, const Slice &key)
{
    size_t begin = index == 0 ? 0 : ends[index - 1];
    bytes.insert(begin, key.data(), key.size());
    ends.insert(ends.begin() + (std::ptrdiff_t)index, (uint16_t)begin);
    for (size_t at = index; at < ends.size(); at++)
        ends[at] = (uint16_t)(ends[at] + key.size());
}

void KeyIndex::Leaf::Remove(size_t index)
{
    size_t begin = index == 0 ? 0 : ends[index - 1], length = ends[index] - begin;
    bytes.erase(begin, length);
    ends.erase(ends.begin() + (std::ptrdiff_t)index);
    for (size_t at = index; at < ends.size(); at++)
        ends[at] = (uint16_t)(ends[at] - length);
}

size_t KeyIndex::Place(const Leaf &leaf, const Slice &key) const
{
    size_t low = 0, high = leaf.ends.size();
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (comparator_->Compare(leaf.at(middle), key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool KeyIndex::IsAt(const Leaf &leaf, size_t index, const Slice &key) const
{
    return index < leaf.ends.size() && comparator_->Compare(leaf.at(index), key) == 0;
}

KeyIndex::Leaves::const_iterator KeyIndex::LeafOf(const Slice &key) const
{
    auto leaf = leaves_.upper_bound(key);
    return leaf == leaves_.begin() ? leaf : std::prev(leaf);
}

void KeyIndex::Insert(const Slice &key)
{
    std::lock_guard<std::mutex> guard(mutex_);
    if (leaves_.empty())
        leaves_.emplace(key.ToString(), std::make_unique<Leaf>());
    auto found = LeafOf(key);
    if (comparator_->Compare(key, found->first) < 0) {
        /* Before all of them: the first leaf begins earlier from now on. */
        auto node = leaves_.extract(found);
        node.key() = key.ToString();
        found = leaves_.insert(std::move(node)).position;
    }
    Leaf *leaf = found->second.get();
    size_t place = Place(*leaf, key);
    if (IsAt(*leaf, place, key))
        return;
    leaf->Insert(place, key);
    size_.fetch_add(1, std::memory_order_relaxed);
    if (leaf->ends.size() < kLeafKeys)
        return;
    /* Keys that come in order fill leaves; others leave half of each for those that come between. */
    bool is_last = std::next(found) == leaves_.cend() && place + 1 == leaf->ends.size();
    size_t kept = is_last ? kLeafKeys - 1 : kLeafKeys / 2;
    auto upper = std::make_unique<Leaf>();
    for (size_t at = kept; at < leaf->ends.size(); at++)
        upper->Insert(upper->ends.size(), leaf->at(at));
    leaf->bytes.resize(leaf->ends[kept - 1]);
    leaf->ends.resize(kept);
    std::string least = upper->at(0).ToString();
    leaves_.emplace(std::move(least), std::move(upper));
}

void KeyIndex::Remove(const Slice &key)
{
    std::lock_guard<std::mutex> guard(mutex_);
    auto found = LeafOf(key);
    if (found == leaves_.cend())
        return;
    Leaf *leaf = found->second.get();
    size_t place = Place(*leaf, key);
    if (!IsAt(*leaf, place, key))
        return;
    leaf->Remove(place);
    size_.fetch_sub(1, std::memory_order_relaxed);
    if (leaf->ends.empty())
        leaves_.erase(found);
}

void KeyIndex::Clear()
{
    std::lock_guard<std::mutex> guard(mutex_);
    leaves_.clear();
    size_ = 0;
}

Status KeyIndex::Complete(const std::function<void()> &settle,
                          const std::function<Status(const std::function<void(const Slice &)> &)> &list)
{
    if (IsComplete() && !is_doubtful.load(std::memory_order_acquire))
        return Status::OK();
    std::lock_guard<std::mutex> guard(completing_);
    bool is_again = is_doubtful.exchange(false);
    if (IsComplete() && !is_again)
        return Status::OK();
    /* Whoever changes something from now on tells it, and what was changed before is listed. */
    is_live_.store(true, std::memory_order_seq_cst);
    settle();
    Status status = list([this](const Slice &key) { Insert(key); });
    if (status.ok())
        is_complete_.store(true, std::memory_order_release);
    else if (is_again)
        is_doubtful.store(true);
    return status;
}

void KeyIndex::Forward(const Slice *from, bool is_from_included, size_t most, std::vector<std::string> *keys) const
{
    std::lock_guard<std::mutex> guard(mutex_);
    auto leaf = from == nullptr ? leaves_.begin() : LeafOf(*from);
    if (leaf == leaves_.end())
        return;
    size_t place = 0;
    if (from != nullptr) {
        place = Place(*leaf->second, *from);
        place += !is_from_included && IsAt(*leaf->second, place, *from);
    }
    for (; leaf != leaves_.end(); ++leaf, place = 0) {
        for (; place < leaf->second->ends.size(); place++) {
            if (keys->size() == most)
                return;
            keys->push_back(leaf->second->at(place).ToString());
        }
    }
}

void KeyIndex::Backward(const Slice *from, bool is_from_included, size_t most, std::vector<std::string> *keys) const
{
    std::lock_guard<std::mutex> guard(mutex_);
    if (leaves_.empty())
        return;
    auto leaf = from == nullptr ? std::prev(leaves_.end()) : LeafOf(*from);
    size_t place = leaf->second->ends.size();
    if (from != nullptr) {
        place = Place(*leaf->second, *from);
        place += is_from_included && IsAt(*leaf->second, place, *from);
    }
    for (;;) {
        while (place > 0) {
            if (keys->size() == most)
                return;
            keys->push_back(leaf->second->at(--place).ToString());
        }
        if (leaf == leaves_.begin())
            return;
        --leaf;
        place = leaf->second->ends.size();
    }
}

} // namespace unvme_rocksdb
