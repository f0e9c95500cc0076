#include "log.h"

#include <cstdarg>
#include <cstdio>
#include <ctime>
#include <mutex>
#include <string>
#include <utility>

#include <pthread.h>
#include <sys/time.h>

namespace unvme_rocksdb {

namespace {

/* As RocksDB begins its lines: the time, and which thread. */
std::string Beginning()
{
    timeval now;
    tm local;
    char text[96];
    gettimeofday(&now, nullptr);
    localtime_r(&now.tv_sec, &local);
    size_t size = strftime(text, sizeof text, "%Y/%m/%d-%H:%M:%S", &local);
    snprintf(text + size, sizeof text - size, ".%06ld %llu ", (long)now.tv_usec, (unsigned long long)pthread_self());
    return text;
}

class Log final : public rocksdb::Logger {
public:
    explicit Log(std::unique_ptr<Handle> handle) : handle_(std::move(handle)) {}

    using rocksdb::Logger::Logv;

    void Logv(const char *format, va_list arguments) override
    {
        std::string line = Beginning();
        const size_t begun = line.size();
        va_list again;
        va_copy(again, arguments);
        int size = vsnprintf(nullptr, 0, format, again);
        va_end(again);
        if (size < 0)
            return;
        line.resize(begun + (size_t)size + 1);
        vsnprintf(&line[begun], (size_t)size + 1, format, arguments);
        line.back() = '\n';
        if (size > 0 && line[line.size() - 2] == '\n')
            line.pop_back();
        std::lock_guard<std::mutex> guard(mutex_);
        if (handle_->Write(size_, line).ok())
            size_ += line.size();
    }

    size_t GetLogFileSize() const override
    {
        std::lock_guard<std::mutex> guard(mutex_);
        return size_;
    }

private:
    rocksdb::Status CloseImpl() override { return rocksdb::Status::OK(); }

    const std::unique_ptr<Handle> handle_;
    mutable std::mutex mutex_;
    size_t size_ = 0;
};

} // namespace

std::shared_ptr<rocksdb::Logger> NewLog(std::unique_ptr<Handle> handle)
{
    return std::make_shared<Log>(std::move(handle));
}

} // namespace unvme_rocksdb
