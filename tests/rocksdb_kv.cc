/*
 * Random histories of a database of pairs, against a map; then the same by several threads at once.
 *
 *   rocksdb_kv SEED STEPS    on the device that UNVME_KV_ROCKSDB names, which is emptied
 *   rocksdb_kv batches COUNT  stores batches until somebody kills it, each with one number in all its pairs
 *   rocksdb_kv synced COUNT   the same, and each is synced
 *   rocksdb_kv whole          says whether every batch that is there is whole
 *   rocksdb_kv left           stores batches that cannot be forgotten, and resumes
 *   rocksdb_kv overtaken      stores key=1 in a batch and key=2 beside it, and dies when that is acknowledged
 */
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <signal.h>
#include <unistd.h>

#include <rocksdb/db.h>
#include <rocksdb/merge_operator.h>
#include <rocksdb/write_batch.h>

using rocksdb::Slice;
using rocksdb::Status;

namespace {

using Model = std::map<std::string, std::string>;

void Fail(const std::string &what)
{
    fprintf(stderr, "rocksdb_kv: %s\n", what.c_str());
    abort();
}

void Must(const Status &status, const char *what)
{
    if (!status.ok())
        Fail(std::string(what) + ": " + status.ToString());
}

void Same(const std::string &found, const std::string &expected, const std::string &what)
{
    if (found != expected)
        Fail(what + ": found '" + found.substr(0, 60) + "', not '" + expected.substr(0, 60) + "'");
}

class Append final : public rocksdb::AssociativeMergeOperator {
public:
    bool Merge(const Slice &, const Slice *existing, const Slice &value, std::string *result, rocksdb::Logger *) const override
    {
        *result = (existing == nullptr ? "" : existing->ToString()) + value.ToString();
        return true;
    }
    const char *Name() const override { return "append"; }
};

rocksdb::Options TheOptions()
{
    rocksdb::Options options;
    options.create_if_missing = true;
    options.create_missing_column_families = true;
    options.merge_operator = std::make_shared<Append>();
    return options;
}

/* Two families and what they should have. */
class History {
public:
    History(unsigned seed, size_t families) : random_(seed), models_(families) { Open(); }
    ~History() { Close(); }

    void Open()
    {
        std::vector<rocksdb::ColumnFamilyDescriptor> wanted{{rocksdb::kDefaultColumnFamilyName, TheOptions()}};
        if (models_.size() > 1)
            wanted.push_back({"second", TheOptions()});
        rocksdb::DB *database = nullptr;
        Must(rocksdb::DB::Open(TheOptions(), "/any", wanted, &handles_, &database), "open");
        database_.reset(database);
    }

    void Close()
    {
        for (rocksdb::ColumnFamilyHandle *handle : handles_)
            Must(database_->DestroyColumnFamilyHandle(handle), "handle");
        handles_.clear();
        Must(database_->Close(), "close");
        database_.reset();
    }

    void Step()
    {
        size_t family = random_() % models_.size();
        Model &model = models_[family];
        rocksdb::ColumnFamilyHandle *handle = handles_[family];
        rocksdb::WriteOptions options;
        options.sync = random_() % 50 == 0;
        std::string key = Key(), value = Value();
        switch (random_() % 16) {
        case 0: case 1: case 2: case 3:
            Must(database_->Put(options, handle, key, value), "put");
            model[key] = value;
            break;
        case 4: case 5:
            Must(database_->Delete(options, handle, key), "delete");
            model.erase(key);
            break;
        case 6:
            value = value.substr(0, 20);
            Must(database_->Merge(options, handle, key, value), "merge");
            model[key] += value;
            break;
        case 7: case 8:
            Batch(options);
            break;
        case 9: {
            std::string end = Key();
            if (end < key)
                std::swap(end, key);
            if (random_() % 4 != 0)
                end = key + "~";
            Must(database_->DeleteRange(options, handle, key, end), "delete a range");
            model.erase(model.lower_bound(key), model.lower_bound(end));
            break;
        }
        case 10:
            GetSeveral(family);
            break;
        case 11: case 12:
            Walk(family);
            break;
        default:
            GetOne(family, key);
        }
    }

    void CompareAll()
    {
        for (size_t family = 0; family < models_.size(); family++) {
            std::unique_ptr<rocksdb::Iterator> it(database_->NewIterator(rocksdb::ReadOptions(), handles_[family]));
            auto expected = models_[family].begin();
            for (it->SeekToFirst(); it->Valid(); it->Next(), ++expected) {
                if (expected == models_[family].end())
                    Fail("there is a key too many: " + it->key().ToString());
                Same(it->key().ToString(), expected->first, "key");
                Same(it->value().ToString(), expected->second, "value");
            }
            Must(it->status(), "iterate");
            if (expected != models_[family].end())
                Fail("a key is missing: " + expected->first);
        }
    }

private:
    std::string Key()
    {
        std::string key = "key" + std::to_string(random_() % 400);
        key.resize(std::max<size_t>(key.size(), 8), '.');
        return key;
    }

    std::string Value()
    {
        static const size_t sizes[] = {0, 1, 7, 100, 400, 4096, 5000, 40000, 300000};
        size_t most = random_() % 200 == 0 ? 9 : 6;
        return std::string(sizes[random_() % most], (char)('a' + random_() % 26));
    }

    void GetOne(size_t family, const std::string &key)
    {
        std::string value;
        Status status = database_->Get(rocksdb::ReadOptions(), handles_[family], key, &value);
        Expect(family, key, status, value);
    }

    void Expect(size_t family, const std::string &key, const Status &status, const std::string &value)
    {
        auto expected = models_[family].find(key);
        if (expected == models_[family].end()) {
            if (!status.IsNotFound())
                Fail(key + " is there, and was deleted: " + status.ToString());
            return;
        }
        Must(status, "get");
        Same(value, expected->second, key);
    }

    void GetSeveral(size_t family)
    {
        size_t count = random_() % 70;
        std::vector<std::string> keys;
        for (size_t at = 0; at < count; at++)
            keys.push_back(Key());
        std::vector<Slice> slices(keys.begin(), keys.end());
        std::vector<rocksdb::PinnableSlice> values(count);
        std::vector<Status> statuses(count);
        database_->MultiGet(rocksdb::ReadOptions(), handles_[family], count, slices.data(), values.data(), statuses.data());
        for (size_t at = 0; at < count; at++)
            Expect(family, keys[at], statuses[at], values[at].ToString());
    }

    void Batch(const rocksdb::WriteOptions &options)
    {
        rocksdb::WriteBatch batch;
        bool is_merged = random_() % 8 == 0;
        for (size_t count = random_() % 50; count > 0; count--) {
            size_t family = random_() % models_.size();
            std::string key = Key(), value = Value();
            switch (random_() % (is_merged ? 4 : 3)) {
            case 0:
                Must(batch.Delete(handles_[family], key), "delete in a batch");
                models_[family].erase(key);
                break;
            case 3:
                Must(batch.Merge(handles_[family], key, "+"), "merge in a batch");
                models_[family][key] += "+";
                break;
            default:
                Must(batch.Put(handles_[family], key, value), "put in a batch");
                models_[family][key] = value;
            }
        }
        Must(database_->Write(options, &batch), "write");
    }

    void Walk(size_t family)
    {
        const Model &model = models_[family];
        rocksdb::ReadOptions options;
        std::string low = Key(), high = Key(), place = Key();
        if (high < low)
            std::swap(low, high);
        Slice lower(low), upper(high);
        auto begin = model.begin(), end = model.end();
        if (random_() % 2) {
            options.iterate_lower_bound = &lower;
            begin = model.lower_bound(low);
        }
        if (random_() % 2) {
            options.iterate_upper_bound = &upper;
            end = model.lower_bound(high);
        }
        Model within(begin, end);
        std::unique_ptr<rocksdb::Iterator> it(database_->NewIterator(options, handles_[family]));
        auto expected = within.begin();
        switch (random_() % 4) {
        case 0:
            it->SeekToFirst();
            break;
        case 1:
            it->SeekToLast();
            expected = within.empty() ? within.end() : std::prev(within.end());
            break;
        case 2:
            it->Seek(place);
            expected = within.lower_bound(place);
            break;
        default:
            it->SeekForPrev(place);
            expected = within.upper_bound(place);
            expected = expected == within.begin() ? within.end() : std::prev(expected);
        }
        bool is_forward = random_() % 2;
        for (int steps = (int)(random_() % 100); steps >= 0; steps--) {
            Must(it->status(), "walk");
            if (it->Valid() != (expected != within.end()))
                Fail("an iterator ends where it should not, or does not end");
            if (!it->Valid())
                return;
            Same(it->key().ToString(), expected->first, "key of an iterator");
            Same(it->value().ToString(), expected->second, "value of an iterator");
            is_forward = random_() % 10 == 0 ? !is_forward : is_forward;
            if (is_forward) {
                it->Next();
                ++expected;
            } else {
                it->Prev();
                expected = expected == within.begin() ? within.end() : std::prev(expected);
            }
        }
    }

    std::mt19937 random_;
    std::vector<Model> models_;
    std::unique_ptr<rocksdb::DB> database_;
    std::vector<rocksdb::ColumnFamilyHandle *> handles_;
};

/* Each thread has keys of its own, and stripes and queues with the others. */
void Together(unsigned seed, size_t steps)
{
    rocksdb::DB *opened = nullptr;
    Must(rocksdb::DB::Open(TheOptions(), "/any", &opened), "open");
    std::unique_ptr<rocksdb::DB> database(opened);
    std::vector<std::thread> threads;
    for (unsigned number = 0; number < 8; number++) {
        threads.emplace_back([&database, number, seed, steps] {
            std::mt19937 random(seed * 100 + number);
            Model model;
            std::string common;
            for (size_t step = 0; step < steps; step++) {
                std::string key = "thread" + std::to_string(number) + "." + std::to_string(random() % 50);
                std::string value(random() % 600, (char)('a' + random() % 26));
                switch (random() % 8) {
                case 0:
                    Must(database->Delete(rocksdb::WriteOptions(), key), "delete");
                    model.erase(key);
                    break;
                case 1: case 2: case 3:
                    Must(database->Put(rocksdb::WriteOptions(), key, value), "put");
                    model[key] = value;
                    break;
                case 4:
                    Must(database->Merge(rocksdb::WriteOptions(), "common", "x"), "merge");
                    common += "x";
                    break;
                case 5: {
                    std::unique_ptr<rocksdb::Iterator> it(database->NewIterator(rocksdb::ReadOptions()));
                    std::string prefix = "thread" + std::to_string(number) + ".";
                    auto expected = model.begin();
                    for (it->Seek(prefix); it->Valid() && it->key().starts_with(prefix); it->Next(), ++expected) {
                        if (expected == model.end())
                            Fail("a key too many among other threads' keys");
                        Same(it->key().ToString(), expected->first, "key beside other threads");
                        Same(it->value().ToString(), expected->second, "value beside other threads");
                    }
                    if (expected != model.end())
                        Fail("a key is missing among other threads' keys");
                    break;
                }
                default: {
                    std::string found;
                    Status status = database->Get(rocksdb::ReadOptions(), key, &found);
                    if (status.IsNotFound() != (model.count(key) == 0))
                        Fail(key + " beside other threads: " + status.ToString());
                    if (status.ok())
                        Same(found, model[key], key);
                }
                }
            }
            Must(database->Put(rocksdb::WriteOptions(), "merged" + std::to_string(number), common), "put");
        });
    }
    for (std::thread &thread : threads)
        thread.join();
    std::string all, common;
    for (unsigned number = 0; number < 8; number++) {
        std::string part;
        Must(database->Get(rocksdb::ReadOptions(), "merged" + std::to_string(number), &part), "get");
        all += part;
    }
    Status status = database->Get(rocksdb::ReadOptions(), "common", &common);
    if (!status.IsNotFound())
        Must(status, "get");
    Same(common, all, "what all threads have merged");
    Must(database->Close(), "close");
}

/* Batches over the same keys, in turn the other way round: what is there is of one of them. */
void Mixed()
{
    rocksdb::DB *opened = nullptr;
    Must(rocksdb::DB::Open(TheOptions(), "/any", &opened), "open");
    std::unique_ptr<rocksdb::DB> database(opened);
    for (int round = 0; round < 100; round++) {
        std::vector<std::thread> threads;
        for (int number = 0; number < 3; number++) {
            threads.emplace_back([&database, number, round] {
                rocksdb::WriteBatch batch;
                for (int at = 0; at < 80; at++) {
                    std::string key = "common" + std::to_string(100 + (number % 2 ? at : 79 - at));
                    Must(batch.Put(key, std::to_string(round) + "." + std::to_string(number)), "put");
                }
                Must(database->Write(rocksdb::WriteOptions(), &batch), "write");
            });
        }
        for (std::thread &thread : threads)
            thread.join();
        std::unique_ptr<rocksdb::Iterator> it(database->NewIterator(rocksdb::ReadOptions()));
        std::string first;
        for (it->Seek("common"); it->Valid() && it->key().starts_with("common"); it->Next()) {
            first = first.empty() ? it->value().ToString() : first;
            Same(it->value().ToString(), first, "a batch beside another one: " + it->key().ToString());
        }
    }
    Must(database->Close(), "close");
    Must(rocksdb::DB::Open(TheOptions(), "/any", &opened), "open what was closed");
    delete opened;
}

/* Pairs of a batch: more than go to the device at once. */
constexpr int kBatchPairs = 100;

void Batches(int count, bool is_synced)
{
    rocksdb::DB *opened = nullptr;
    Must(rocksdb::DB::Open(TheOptions(), "/any", &opened), "open");
    for (int number = 1; number <= count; number++) {
        rocksdb::WriteBatch batch;
        for (int pair = 0; pair < kBatchPairs; pair++) {
            std::string value = std::to_string(number) + std::string((size_t)(number * 7 + pair) % 2000, '.');
            Must(batch.Put("pair" + std::to_string(1000 + pair), value), "put");
        }
        rocksdb::WriteOptions options;
        options.sync = is_synced;
        Must(opened->Write(options, &batch), "write");
        printf("%d\n", number);
        fflush(stdout);
    }
    Must(opened->Close(), "close");
    delete opened;
}

void Whole()
{
    rocksdb::DB *opened = nullptr;
    Must(rocksdb::DB::Open(TheOptions(), "/any", &opened), "open");
    std::unique_ptr<rocksdb::Iterator> it(opened->NewIterator(rocksdb::ReadOptions()));
    int pairs = 0, first = 0;
    for (it->SeekToFirst(); it->Valid(); it->Next(), pairs++) {
        int number = atoi(it->value().ToString().c_str());
        first = pairs == 0 ? number : first;
        if (number != first)
            Fail("half a batch: " + it->key().ToString() + " is of " + std::to_string(number) + ", the first one of " +
                 std::to_string(first));
    }
    Must(it->status(), "iterate");
    if (pairs != 0 && pairs != kBatchPairs)
        Fail(std::to_string(pairs) + " pairs are there");
    printf("%d\n", first);
    it.reset();
    Must(opened->Close(), "close");
    delete opened;
}

/* The device refuses to delete once. */
void Left()
{
    rocksdb::DB *opened = nullptr;
    Must(rocksdb::DB::Open(TheOptions(), "/any", &opened), "open");
    rocksdb::WriteBatch batch;
    Must(batch.Put("key.", "old"), "put");
    Must(batch.Put("other", "old"), "put");
    if (opened->Write(rocksdb::WriteOptions(), &batch).ok())
        Fail("a batch that was not forgotten succeeded");
    if (opened->Put(rocksdb::WriteOptions(), "key.", "new").ok())
        Fail("something was written beside a batch that would undo it");
    Must(opened->Resume(), "resume");
    Must(opened->Put(rocksdb::WriteOptions(), "key.", "new"), "put");
    delete opened;
    Must(rocksdb::DB::Open(TheOptions(), "/any", &opened), "open");
    std::string found;
    Must(opened->Get(rocksdb::ReadOptions(), "key.", &found), "get");
    Same(found, "new", "what was put behind a batch that was left");
    delete opened;
}

void Overtaken()
{
    rocksdb::DB *opened = nullptr;
    Must(rocksdb::DB::Open(TheOptions(), "/any", &opened), "open");
    std::thread([opened] {
        rocksdb::WriteBatch batch;
        Must(batch.Put("key.", "1"), "put");
        Must(batch.Put("other", "1"), "put");
        Must(opened->Write(rocksdb::WriteOptions(), &batch), "write");
    }).detach();
    std::string found;
    while (!opened->Get(rocksdb::ReadOptions(), "other", &found).ok())
        std::this_thread::yield();
    Must(opened->Put(rocksdb::WriteOptions(), "key.", "2"), "put");
    kill(getpid(), SIGKILL);
}

void Limits()
{
    rocksdb::DB *opened = nullptr;
    Must(rocksdb::DB::Open(TheOptions(), "/any", &opened), "open");
    if (opened->GetSnapshot() != nullptr)
        Fail("there is a snapshot");
    rocksdb::DB *another = nullptr;
    if (rocksdb::DB::Open(TheOptions(), "/any", &another).ok())
        Fail("two have the database open");
    rocksdb::DB *reader = nullptr;
    Must(rocksdb::DB::OpenForReadOnly(TheOptions(), "/any", &reader), "open for reading");
    if (reader->Put(rocksdb::WriteOptions(), "no such key", "").ok())
        Fail("a database that is only read was written");
    delete reader;
    std::string long_key(256, 'k'), short_key;
    for (const std::string &key : {long_key, short_key, std::string("\xff\xffunvme.kv/b0000")})
        if (!opened->Put(rocksdb::WriteOptions(), key, "").IsInvalidArgument())
            Fail("a key that cannot be was taken");
    std::string large(5 << 20, 'v'), found;
    Must(opened->Put(rocksdb::WriteOptions(), "large", large), "put a large value");
    Must(opened->Get(rocksdb::ReadOptions(), "large", &found), "get a large value");
    Same(found, large, "a large value");
    Must(opened->Close(), "close");
    delete opened;
}

} // namespace

int main(int count, char **words)
{
    if (count == 3 && strcmp(words[1], "batches") == 0) {
        Batches(atoi(words[2]), false);
    } else if (count == 3 && strcmp(words[1], "synced") == 0) {
        Batches(atoi(words[2]), true);
    } else if (count == 2 && strcmp(words[1], "whole") == 0) {
        Whole();
    } else if (count == 2 && strcmp(words[1], "overtaken") == 0) {
        Overtaken();
    } else if (count == 2 && strcmp(words[1], "left") == 0) {
        Left();
    } else if (count == 3 || count == 4) {
        unsigned seed = (unsigned)atoi(words[1]);
        size_t steps = (size_t)atoi(words[2]), families = count == 4 ? 1 : 2;
        Must(rocksdb::DestroyDB("/any", TheOptions()), "destroy");
        {
            History history(seed, families);
            for (size_t step = 1; step <= steps; step++) {
                history.Step();
                if (step % (steps / 4) == 0) {
                    history.Close();
                    history.Open();
                    history.CompareAll();
                }
            }
        }
        Must(rocksdb::DestroyDB("/any", TheOptions()), "destroy");
        Together(seed, steps / 2);
        Must(rocksdb::DestroyDB("/any", TheOptions()), "destroy");
        /* What is not written down is not kept apart either. */
        const char *place = getenv("UNVME_KV_ROCKSDB");
        if (place == nullptr || strstr(place, "atomic=0") == nullptr)
            Mixed();
        Must(rocksdb::DestroyDB("/any", TheOptions()), "destroy");
        Limits();
    } else {
        fprintf(stderr, "usage: rocksdb_kv SEED STEPS [one] | batches COUNT | synced COUNT | whole | left | overtaken\n");
        return 2;
    }
    return 0;
}
