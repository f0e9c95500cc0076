#include "text.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace unvme_rocksdb {

bool ParseNumber(const std::string &text, uint64_t most, uint64_t *number)
{
    if (text.empty() || text.size() > 19 || text.find_first_not_of("0123456789") != std::string::npos)
        return false;
    *number = std::stoull(text);
    return *number <= most;
}

bool ParseSize(const std::string &text, uint64_t *bytes)
{
    if (text.empty())
        return false;
    static const char units[] = "KMGT";
    const char *unit = text.back() == 0 ? nullptr : strchr(units, toupper((unsigned char)text.back()));
    unsigned shift = unit ? 10 * (unsigned)(unit - units + 1) : 0;
    std::string digits = unit ? text.substr(0, text.size() - 1) : text;
    return ParseNumber(digits, UINT64_MAX >> shift, bytes) && ((*bytes <<= shift), true);
}

bool ParseBool(const std::string &text, bool *value)
{
    *value = text == "1" || text == "true" || text.empty();
    return *value || text == "0" || text == "false";
}

std::string Decode(const std::string &text)
{
    std::string decoded;
    for (size_t at = 0; at < text.size(); at++) {
        auto is_digit = [&](size_t index) { return index < text.size() && isxdigit((unsigned char)text[index]); };
        if (text[at] == '%' && is_digit(at + 1) && is_digit(at + 2)) {
            decoded += (char)std::stoi(text.substr(at + 1, 2), nullptr, 16);
            at += 2;
        } else {
            decoded += text[at];
        }
    }
    return decoded;
}

std::string EachOption(const std::string &text,
                       const std::function<std::string(const std::string &key, const std::string &value)> &take)
{
    size_t from = 0;
    while (from <= text.size()) {
        size_t to = std::min(text.find('&', from), text.size());
        std::string option = text.substr(from, to - from);
        size_t equals = option.find('=');
        std::string value = equals == std::string::npos ? "" : Decode(option.substr(equals + 1));
        std::string wrong = take(option.substr(0, equals), value);
        if (!wrong.empty())
            return wrong;
        from = to + 1;
    }
    return "";
}

FILE *OpenStatistics()
{
    const char *path = getenv("UNVME_ROCKSDB_STATS");
    FILE *file = path == nullptr ? nullptr : fopen(path, "ae");
    if (path != nullptr && file == nullptr)
        fprintf(stderr, "unvme: UNVME_ROCKSDB_STATS=%s: %s\n", path, strerror(errno));
    return file;
}

std::string Quoted(const std::string &text)
{
    std::string quoted = "\"";
    for (unsigned char letter : text) {
        char code[8];
        if (letter == '"' || letter == '\\') {
            quoted += '\\';
            quoted += (char)letter;
        } else if (letter < 0x20) {
            snprintf(code, sizeof code, "\\u%04x", letter);
            quoted += code;
        } else {
            quoted += (char)letter;
        }
    }
    return quoted + "\"";
}

} // namespace unvme_rocksdb
