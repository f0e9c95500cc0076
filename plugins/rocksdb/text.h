/* What people write, and what programs read. */
#pragma once

#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>

namespace unvme_rocksdb {

/* A decimal number of at most most. False when it is none. */
bool ParseNumber(const std::string &text, uint64_t most, uint64_t *number);

/* A number with a unit of 1024: 4096, 512K, 1G. False when it is none. */
bool ParseSize(const std::string &text, uint64_t *bytes);

/* 1, true and nothing at all, or 0 and false. False when it is none of them. */
bool ParseBool(const std::string &text, bool *value);

/* %41 is A; a % that no two digits follow is itself, as in op=18%. */
std::string Decode(const std::string &text);

/*
 * Calls take with each KEY=VALUE of KEY=VALUE&KEY=VALUE; a value that is missing is "". What is wrong with
 * one ends it, and is returned; "" otherwise.
 */
std::string EachOption(const std::string &text,
                       const std::function<std::string(const std::string &key, const std::string &value)> &take);

/*
 * The file that UNVME_ROCKSDB_STATS names, for another line; null when it names none, and when it cannot be
 * opened, which is said.
 */
FILE *OpenStatistics();

/* As a string of JSON, with its quotes. */
std::string Quoted(const std::string &text);

} // namespace unvme_rocksdb
