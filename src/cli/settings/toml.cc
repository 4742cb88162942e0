/* toml.cc - the C interface of toml.h over toml++.
 *
 * Tables of toml++ are sorted by name, so all values are collected first and given to the caller by
 * their places. A refusal therefore comes before any call. No exception leaves this file. */
#include "cli/settings/toml.h"

/* Of some texts toml++ 3.3 asserts what it then checks as well ("[.x]"). Where NDEBUG is
 * defined, it lets the compiler assume it. Of others (U+02DE after a value) it says that they
 * cannot be. Here it does neither: they are refused. */
#undef NDEBUG
#define TOML_ASSERT(expr) static_cast<void>(0)
#define TOML_EXCEPTIONS   0
#if __has_include(<toml++/toml.hpp>) /* toml++ 3.4 renamed its headers from .h to .hpp */
#include <toml++/impl/forward_declarations.hpp>
#undef TOML_UNREACHABLE
#define TOML_UNREACHABLE return false
#include <toml++/impl/unicode.hpp>
#undef TOML_UNREACHABLE
#define TOML_UNREACHABLE __builtin_unreachable()
#include <toml++/toml.hpp>
#else
#include <toml++/impl/forward_declarations.h>
#undef TOML_UNREACHABLE
#define TOML_UNREACHABLE return false
#include <toml++/impl/unicode.h>
#undef TOML_UNREACHABLE
#define TOML_UNREACHABLE __builtin_unreachable()
#include <toml++/toml.h>
#endif

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <new>
#include <string>
#include <vector>

namespace
{

/* One value of the file, before it is handed out. */
struct item {
    std::string key, text, json; /* joined by dots; as flat text; of a list as JSON */
    dl_toml_type type;
    dl_toml_place key_at, at, comma_at; /* as in dl_toml_value */
};

/* A mistake with its place; it is thrown and caught within this file. */
struct refusal {
    std::string text;
    dl_toml_place at; /* where it is */
};

/* toml++ counts lines and columns from 1, as dl_toml_place does. */
dl_toml_place place_of(const toml::source_region &region)
{
    return {static_cast<unsigned>(region.begin.line), static_cast<unsigned>(region.begin.column)};
}

/* x - x is 0 for finite numbers only. */
std::string text_of(double value, dl_toml_place at)
{
    if (!(value - value == 0)) throw refusal{"infinities and nan are no values here", at};
    char text[64];
    auto end = std::to_chars(text, text + sizeof text, value); /* shortest that reads back */
    return std::string(text, end.ptr);
}

/* A zero byte would end the text early in C. */
std::string checked(const std::string &text, dl_toml_place at)
{
    if (text.find('\0') != std::string::npos) throw refusal{"the text holds a zero byte", at};
    return text;
}

/* Append a string of JSON (RFC 8259): quotes, backslashes and control characters are escaped. */
void add_json(std::string &out, const std::string &text)
{
    out += '"';
    for (const char c : text) {
        char escaped[8];
        if (c == '"' || c == '\\')
            out += '\\', out += c;
        else if (static_cast<unsigned char>(c) < 0x20)
            std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned char>(c)),
                out += escaped;
        else
            out += c;
    }
    out += '"';
}

/* An array of strings becomes one text with commas, and a JSON array. A comma inside a string would
 * make two of it in the former, so its place is kept for the caller, who knows which form counts.
 */
void join(item &item, const toml::array &array)
{
    item.json = "[";
    for (const toml::node &node : array) {
        const auto *text = node.as_string();
        dl_toml_place at = place_of(node.source());
        if (!text) throw refusal{"an array may hold only strings", at};
        const std::string one = checked(text->get(), at);
        if (one.find(',') != std::string::npos && !item.comma_at.line) item.comma_at = at;
        if (&node != &array.front()) item.text += ',', item.json += ',';
        item.text += one;
        add_json(item.json, one);
    }
    item.json += "]";
}

/* Every type of TOML is here; those that no option has are refused. */
void set_value(item &item, const toml::node &node)
{
    if (const auto *text = node.as_string()) {
        item.type = DL_TOML_STRING, item.text = checked(text->get(), item.at);
    } else if (const auto *integer = node.as_integer()) {
        item.type = DL_TOML_INTEGER, item.text = std::to_string(integer->get());
    } else if (const auto *real = node.as_floating_point()) {
        item.type = DL_TOML_FLOAT, item.text = text_of(real->get(), item.at);
    } else if (const auto *truth = node.as_boolean()) {
        item.type = DL_TOML_BOOL, item.text = truth->get() ? "true" : "false";
    } else if (const auto *array = node.as_array()) {
        item.type = DL_TOML_LIST, join(item, *array);
    } else {
        throw refusal{"dates and times are no values here", item.at};
    }
}

/* Tables are walked recursively. toml++ bounds the depth of brackets, check_keys that of dots. */
void collect(std::vector<item> &items, const toml::table &table, const std::string &prefix)
{
    for (auto &&[key, node] : table) {
        dl_toml_place key_at = place_of(key.source());
        std::string name = prefix + checked(std::string(key.str()), key_at);
        if (const toml::table *inner = node.as_table()) {
            collect(items, *inner, name + ".");
            continue;
        }
        item found{name, "", "", DL_TOML_STRING, key_at, place_of(node.source()), {0, 0}};
        set_value(found, node);
        items.push_back(found);
    }
}

/* Return true if the text has ".2" at this place, a number that TOML refuses. The parser's own
 * message does not say what is wrong. */
bool lacks_digit(std::string_view text, dl_toml_place at)
{
    for (unsigned line = 1; line < at.line; line++)
        text.remove_prefix(std::min(text.find('\n'), text.size() - 1) + 1);
    if (at.column < 1 || at.column >= text.size()) return false;
    return text[at.column - 1] == '.' && text[at.column] >= '0' && text[at.column] <= '9';
}

/* Refuse a line with a thousand dots outside strings. toml++ makes a table of each part of a key,
 * and both it and `collect` take stack for each table. */
void check_keys(std::string_view text)
{
    constexpr unsigned most = 1000;
    dl_toml_place at = {1, 0};
    unsigned n = 0;
    char quote = 0;
    for (size_t i = 0; i < text.size(); i++) {
        const char c = text[i];
        at.column++;
        if (c == '\n')
            at = {at.line + 1, 0}, n = 0, quote = 0;
        else if (quote == '"' && c == '\\' && i + 1 < text.size() && text[i + 1] != '\n')
            i++, at.column++;
        else if (quote ? c == quote : c == '"' || c == '\'')
            quote = quote ? 0 : c;
        else if (!quote && c == '.' && ++n > most)
            throw refusal{"a key of more than " + std::to_string(most) + " parts", at};
    }
}

/* Values are sorted by their places in the text, as a table of toml++ has them by name. */
std::vector<item> parse(const char *text, size_t len)
{
    check_keys({text, len});
    toml::parse_result result = toml::parse(std::string_view(text, len));
    if (!result) {
        std::string why(result.error().description());
        const dl_toml_place at = place_of(result.error().source());
        if (lacks_digit(std::string_view(text, len), at))
            why = "a number in TOML begins with a digit: write 0.5 instead of .5";
        throw refusal{why, at};
    }
    std::vector<item> items;
    collect(items, result.table(), "");
    std::stable_sort(items.begin(), items.end(), [](const item &a, const item &b) {
        return a.key_at.line != b.key_at.line ? a.key_at.line < b.key_at.line
                                              : a.key_at.column < b.key_at.column;
    });
    return items;
}

/* The text is cut to the room of the error. */
void put_error(dl_toml_error *error, const char *text, dl_toml_place at)
{
    std::snprintf(error->text, sizeof error->text, "%s", text);
    error->at = at;
}

} // namespace

/* All values are collected before the first call, so fn is not called for a file that is
 * refused. */
bool dl_toml_walk(const char *text, size_t len, dl_toml_fn fn, void *user, dl_toml_error *error)
{
    try {
        for (const item &item : parse(text, len)) {
            const bool list = item.type == DL_TOML_LIST;
            dl_toml_value value = {item.key.c_str(), item.text.c_str(),
                                   item.type,        item.key_at,
                                   item.at,          list ? item.json.c_str() : nullptr,
                                   item.comma_at};
            if (!fn(user, &value)) break;
        }
        return true;
    } catch (const refusal &why) {
        put_error(error, why.text.c_str(), why.at);
    } catch (const std::bad_alloc &) {
        put_error(error, "not enough memory to read it", {1, 1});
    }
    return false;
}
