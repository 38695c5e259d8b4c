#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/error.h"

namespace primal {

/// Which values a number may take; an open end excludes the end itself. Infinity is allowed only
/// where `min` or `max` is that infinity; NaN never.
template <class T>
struct Bound {
  std::optional<T> min{};
  std::optional<T> max{};
  bool min_open = false;
  bool max_open = false;

  // `at_least(1)` bounds a real field as well as an integer one.
  template <class U>
  requires(std::same_as<T, int64_t>&& std::same_as<U, double>) constexpr operator Bound<U>() const {
    Bound<U> wide{.min_open = min_open, .max_open = max_open};
    if (min) wide.min = static_cast<double>(*min);
    if (max) wide.max = static_cast<double>(*max);
    return wide;
  }
};

template <class N>
using BoundNumber = std::conditional_t<std::is_integral_v<N>, int64_t, double>;

template <class N>
constexpr Bound<BoundNumber<N>> at_least(N min) {
  return {.min = min};
}

template <class N>
constexpr Bound<BoundNumber<N>> at_most(N max) {
  return {.max = max};
}

constexpr Bound<int64_t> positive() {
  return {.min = 0, .min_open = true};
}

/// min <= value <= max.
template <class A, class B>
constexpr Bound<BoundNumber<std::common_type_t<A, B>>> between(A min, B max) {
  using T = BoundNumber<std::common_type_t<A, B>>;
  return {.min = static_cast<T>(min), .max = static_cast<T>(max)};
}

/// min <= value < max, such as a dropout probability.
template <class A, class B>
constexpr Bound<BoundNumber<std::common_type_t<A, B>>> half_open(A min, B max) {
  auto bound = between(min, max);
  bound.max_open = true;
  return bound;
}

/// A row of a registry table: one implementation of Base that a configuration can name.
template <class Base>
struct Kind {
  std::string_view name;
  std::string_view help;
  std::unique_ptr<Base> (*make)();
};

/// Visitor of a config struct, whose `void fields(Fields& f)` lists every field once. The same list
/// serves reading, printing and documenting. A struct may also have `void check() const`, which is
/// called once its fields are read and throws Error where they do not go together.
class Fields {
 public:
  virtual ~Fields() = default;

  void field(std::string_view name, int64_t& v, Bound<int64_t> bound, std::string_view help) {
    integer(name, v, bound, help);
  }
  void field(std::string_view name, double& v, Bound<double> bound, std::string_view help) {
    real(name, v, bound, help);
  }
  void field(std::string_view name, bool& v, std::string_view help) { boolean(name, v, help); }
  void field(std::string_view name, std::string& v, std::string_view help) { text(name, v, help); }

  /// One of a fixed set of names. The value that `v` holds must be among them.
  template <class E>
  void choice(std::string_view name, E& v,
              std::initializer_list<std::pair<std::string_view, E>> names, std::string_view help) {
    std::vector<std::string_view> words;
    size_t current = names.size();
    for (const auto& [word, value] : names) {
      if (current == names.size() && value == v) current = words.size();
      words.push_back(word);
    }
    if (current == names.size()) fail("config: the default of '{}' is not among its choices", name);
    v = (names.begin() + choose(name, current, words, help))->second;
  }

  /// A nested struct; keys that are not given keep the value that `v` has.
  template <class T>
  void section(std::string_view name, T& v, std::string_view help) {
    open_section(name, record_of(v), help);
  }

  /// A YAML list of maps; a given list replaces the whole of `v`.
  template <class T>
  void list(std::string_view name, std::vector<T>& v, std::string_view help) {
    T example{};
    open_list(name, v.size(),
              {.resize = [&v](size_t size) { v = std::vector<T>(size); },
               .item = [&v](size_t i) { return record_of(v[i]); },
               .example = record_of(example)},
              help);
  }

  /// One implementation out of a registry: `name: canonical` or `name: {kind: primal, rank: 30}`.
  /// Without `kind`, and for the kind that `v` has already, keys that are not given keep the value
  /// of `v`; any other kind starts from its own defaults. Base has `virtual void fields(Fields&)`
  /// and `virtual std::string_view kind() const`.
  template <class Base>
  void variant(std::string_view name, std::unique_ptr<Base>& v, std::span<const Kind<Base>> kinds,
               std::string_view help) {
    std::vector<KindName> names;
    for (const Kind<Base>& kind : kinds) names.push_back({kind.name, kind.help});
    std::unique_ptr<Base> example;
    open_variant(name, v ? std::string(v->kind()) : std::string(), names,
                 {.make = [&v, kinds](size_t i) { v = kinds[i].make(); },
                  .value = [&v] { return record_of(*v); },
                  .example =
                      [&example, kinds](size_t i) {
                        example = kinds[i].make();
                        return record_of(*example);
                      }},
                 help);
  }

  /// A struct behind its two operations; `check` is empty if it has none.
  struct Record {
    std::function<void(Fields&)> visit;
    std::function<void()> check;
  };

  template <class T>
  static Record record_of(T& v) {
    Record record{.visit = [&v](Fields& f) { v.fields(f); }, .check = {}};
    if constexpr (requires(const T& t) { t.check(); }) record.check = [&v] { v.check(); };
    return record;
  }

 protected:
  struct List {
    std::function<void(size_t)> resize;
    std::function<Record(size_t)> item;
    Record example;
  };
  struct KindName {
    std::string_view name;
    std::string_view help;
  };
  struct Variant {
    std::function<void(size_t)> make;       // puts a new object of kind i in place
    std::function<Record()> value;          // the object in place
    std::function<Record(size_t)> example;  // an object of kind i, valid until the next call
  };

 private:
  virtual void integer(std::string_view name, int64_t& v, const Bound<int64_t>& bound,
                       std::string_view help) = 0;
  virtual void real(std::string_view name, double& v, const Bound<double>& bound,
                    std::string_view help) = 0;
  virtual void boolean(std::string_view name, bool& v, std::string_view help) = 0;
  virtual void text(std::string_view name, std::string& v, std::string_view help) = 0;
  virtual size_t choose(std::string_view name, size_t current,
                        std::span<const std::string_view> names, std::string_view help) = 0;
  virtual void open_section(std::string_view name, const Record& record, std::string_view help) = 0;
  virtual void open_list(std::string_view name, size_t size, const List& list,
                         std::string_view help) = 0;
  /// `current` is the kind that is in place, empty if none is.
  virtual void open_variant(std::string_view name, const std::string& current,
                            std::span<const KindName> kinds, const Variant& variant,
                            std::string_view help) = 0;
};

struct ConfigNode;

/// A parsed YAML text with `--set key=value` overrides applied in order; immutable, cheap to copy.
///
/// An override's key is a dotted path in which numbers index existing list entries, as in
/// `model.layers.1.attention.rank=20`; its value is YAML, as in `model.layers=[{dim: 8}, {dim:
/// 4}]`. A shorthand such as `attention: primal` is expanded when a key below it is set. Setting
/// the `kind` of a variant to another kind drops the keys that the file gives beside it, since they
/// were meant for the old kind; keys set by overrides stay.
///
/// Errors begin with `FILE:LINE:` (syntax errors with `FILE:LINE:COLUMN:`); those that an override
/// causes begin with `--set key=value:` and are UsageErrors.
class ConfigSource {
 public:
  static ConfigSource from_file(const std::filesystem::path& path,
                                const std::vector<std::string>& overrides = {});
  static ConfigSource from_string(std::string_view yaml, std::string name,
                                  const std::vector<std::string>& overrides = {});

  /// The file's path, or the name given to from_string.
  const std::string& name() const { return name_; }
  /// Whether file and overrides together give no key at all.
  bool empty() const;
  /// Whether the dotted key is given, as opposed to left at its default.
  bool has(std::string_view key) const;
  /// The scalar at a dotted key; `otherwise` if the key is not given. Throws if it is no scalar.
  std::string text_at(std::string_view key, std::string_view otherwise = "") const;

  const ConfigNode& root() const { return *root_; }

 private:
  std::string name_;
  std::shared_ptr<const ConfigNode> root_;
};

bool is_utf8(std::string_view text);

/// The candidate nearest to a mistyped word, or an empty string if none is near.
std::string nearest(std::string_view word, std::span<const std::string_view> candidates);

void read_record(const ConfigSource& source, const Fields::Record& record);
std::string print_record(const Fields::Record& record);
std::string document_record(const Fields::Record& record);

/// Reads every given key into `into`. Refuses unknown keys, wrong types and values out of bounds,
/// e.g. `FILE:LINE: key 'train.epoch' is not known; did you mean 'train.epochs'?`. After an error
/// `into` is partly filled.
template <class T>
void read_config(const ConfigSource& source, T& into) {
  read_record(source, Fields::record_of(into));
}

/// The resolved YAML: every field in the order of `fields`; reading it back gives the same values.
template <class T>
std::string print_config(T& config) {
  return print_record(Fields::record_of(config));
}

/// Markdown: a table of key, type, default, allowed values and meaning, and one more for each kind
/// of each variant. The defaults are the values that `config` has.
template <class T>
std::string document_config(T& config) {
  return document_record(Fields::record_of(config));
}

}  // namespace primal
