#include "core/config.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>
#include <system_error>

namespace primal {

namespace {

constexpr size_t kMaxBytes = size_t{1} << 20;
constexpr size_t kMaxDepth = 64;
// Aliases copy what they name, so that a small text could otherwise stand for a gigantic tree.
constexpr size_t kMaxNodes = 10'000;

/// Where a text came from: a file, or one `--set key=value`.
struct Origin {
  std::string name;
  bool is_override = false;
};

/// Text fit for a one-line message: control characters escaped, cut when long.
std::string shown(std::string_view text, size_t limit = 80) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool continues_character = (byte & 0xC0) == 0x80;
    if (out.size() >= limit && !continues_character) return out + "...";
    if (text[i] == '\n') {
      out += "\\n";
    } else if (byte < 0x20 || byte == 0x7F) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += text[i];
    }
  }
  return out;
}

std::string dotted(std::string_view prefix, std::string_view name) {
  return prefix.empty() ? std::string(name) : fmt::format("{}.{}", prefix, name);
}

std::string lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return out;
}

template <class Words>
std::string joined(const Words& words) {
  return fmt::format("{}", fmt::join(words, ", "));
}

}  // namespace

/// One YAML value. The children of a map carry their key.
struct ConfigNode {
  enum class Type { kNull, kScalar, kMap, kList };

  Type type = Type::kNull;
  std::string text{};   // of a scalar
  bool quoted = false;  // a scalar that is a string even if it looks like a number
  // A scalar that an override turned into {kind: text}; only a variant takes it for a map.
  bool was_scalar = false;
  // Given beside another `kind` than the one that an override has chosen since.
  bool of_other_kind = false;
  std::string key{};
  std::shared_ptr<const Origin> origin{};
  int line = 0;  // from 1
  int key_line = 0;
  std::vector<ConfigNode> children{};

  const ConfigNode* find(std::string_view name) const {
    if (type != Type::kMap) return nullptr;
    for (const ConfigNode& child : children) {
      if (child.key == name) return &child;
    }
    return nullptr;
  }
};

namespace {

using Type = ConfigNode::Type;

[[noreturn]] void refuse(const Origin& origin, int line, const std::string& message) {
  if (origin.is_override) throw UsageError(fmt::format("{}: {}", origin.name, message));
  throw Error(line > 0 ? fmt::format("{}:{}: {}", origin.name, line, message)
                       : fmt::format("{}: {}", origin.name, message));
}

[[noreturn]] void refuse(const ConfigNode& node, const std::string& message) {
  refuse(*node.origin, node.line, message);
}

std::string described(const ConfigNode& node) {
  switch (node.type) {
    case Type::kNull:
      return "nothing";
    case Type::kMap:
      return "a map";
    case Type::kList:
      return "a list";
    case Type::kScalar:
      break;
  }
  return fmt::format("{}'{}'", node.quoted ? "the text " : "", shown(node.text));
}

size_t node_count(const ConfigNode& node) {
  size_t count = 1;
  for (const ConfigNode& child : node.children) count += node_count(child);
  return count;
}

// ---- Parsing ------------------------------------------------------------------------------------

/// Bytes of the UTF-8 character at the front of `text`, 0 if there is no well-formed one.
size_t utf8_length(std::string_view text) {
  const auto byte = [text](size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t length = lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  // Overlong forms, surrogates, and beyond U+10FFFF.
  const unsigned second = byte(1);
  if ((lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F) ||
      (lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second > 0x8F)) {
    return 0;
  }
  return length;
}

}  // namespace

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

namespace {

/// Builds the tree from the parser's events. yaml-cpp's own tree is not used, since it keeps no
/// lines of keys, lets the first of two equal keys win without a word and shares nodes between
/// aliases.
class TreeBuilder : public YAML::EventHandler {
 public:
  explicit TreeBuilder(std::shared_ptr<const Origin> origin) : origin_(std::move(origin)) {}

  ConfigNode take_root() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (documents_++ > 0) {
      refuse(mark, "expected the end of the text, found a second document or stray text");
    }
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    add(make(Type::kNull, mark), anchor);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end()) refuse(mark, "an alias stands inside what it names");
    count(node_count(found->second), mark);
    add(found->second, YAML::NullAnchor);
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    ConfigNode node = make(Type::kScalar, mark);
    if (tag != "?" && tag != "!") refuse(mark, "tags are not supported");
    if (value.find('\0') != std::string::npos) refuse(mark, "text holds a NUL character");
    if (!is_utf8(value)) {  // yaml-cpp gives a single byte for these two
      refuse(mark, R"(text is not UTF-8; instead of \N and \_ write \u0085 and \u00a0)");
    }
    node.text = value;
    node.quoted = tag == "!";
    add(std::move(node), anchor);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(Type::kList, mark, tag, anchor);
  }
  void OnSequenceEnd() override { close(); }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(Type::kMap, mark, tag, anchor);
  }
  void OnMapEnd() override { close(); }

 private:
  struct Open {
    ConfigNode node;
    YAML::anchor_t anchor;
    std::optional<ConfigNode> key{};  // of a map: read, and its value is still to come
  };

  [[noreturn]] void refuse(const YAML::Mark& mark, const std::string& message) const {
    primal::refuse(*origin_, mark.line + 1, message);
  }

  void count(size_t nodes, const YAML::Mark& mark) {
    nodes_ += nodes;
    if (nodes_ > kMaxNodes) refuse(mark, fmt::format("more than {} values", kMaxNodes));
  }

  ConfigNode make(Type type, const YAML::Mark& mark) {
    count(1, mark);
    return {.type = type, .origin = origin_, .line = mark.line + 1};
  }

  void open(Type type, const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    if (!tag.empty() && tag != "?" && tag != "!") refuse(mark, "tags are not supported");
    if (open_.size() >= kMaxDepth) {
      refuse(mark, fmt::format("nested more than {} levels deep", kMaxDepth));
    }
    open_.push_back({make(type, mark), anchor});
  }

  void close() {
    Open closed = std::move(open_.back());
    open_.pop_back();
    add(std::move(closed.node), closed.anchor);
  }

  void add(ConfigNode node, YAML::anchor_t anchor) {
    if (anchor != YAML::NullAnchor) anchors_[anchor] = node;
    if (open_.empty()) {
      root_ = std::move(node);
      return;
    }
    Open& parent = open_.back();
    if (parent.node.type == Type::kMap && !parent.key) {
      if (node.type != Type::kScalar) {
        primal::refuse(node, fmt::format("a key must be a word, got {}", described(node)));
      }
      if (const ConfigNode* first = parent.node.find(node.text)) {
        primal::refuse(node, fmt::format("key '{}' is given twice, first on line {}",
                                         shown(node.text), first->key_line));
      }
      parent.key = std::move(node);
      return;
    }
    if (parent.key) {
      node.key = std::move(parent.key->text);
      node.key_line = parent.key->line;
      if (node.type == Type::kNull) node.line = node.key_line;
      parent.key.reset();
    }
    parent.node.children.push_back(std::move(node));
  }

  std::shared_ptr<const Origin> origin_;
  ConfigNode root_{};
  std::vector<Open> open_{};
  std::map<YAML::anchor_t, ConfigNode> anchors_{};
  size_t nodes_ = 0;
  int documents_ = 0;
};

[[noreturn]] void refuse_syntax(const Origin& origin, int line, int column,
                                const std::string& message) {
  if (origin.is_override || line < 1) refuse(origin, line, message);
  throw Error(fmt::format("{}:{}:{}: {}", origin.name, line, column, message));
}

/// yaml-cpp reads UTF-16 where it believes to see it, and takes a control character for the end of
/// the file; neither is meant in a configuration.
void require_plain_utf8(std::string_view text, const Origin& origin) {
  int line = 1;
  int column = 1;
  for (size_t i = 0; i < text.size();) {
    const size_t length = utf8_length(text.substr(i));
    const auto byte = static_cast<unsigned char>(text[i]);
    if (length == 0) refuse_syntax(origin, line, column, "text is not UTF-8");
    if (byte == 0x7F || (byte < 0x20 && byte != '\t' && byte != '\n' && byte != '\r')) {
      refuse_syntax(origin, line, column, fmt::format("control character 0x{:02x}", byte));
    }
    i += length;
    ++column;
    if (byte == '\n') {
      ++line;
      column = 1;
    }
  }
}

/// The first line up to `last_line` that is indented with a tab, 0 if none is.
int tab_indented_line(std::string_view text, int last_line) {
  int line = 1;
  bool indentation = true;
  for (const char c : text) {
    if (line > last_line) break;
    if (c == '\t' && indentation) return line;
    if (c == '\n') {
      ++line;
      indentation = true;
    } else if (c != ' ') {
      indentation = false;
    }
  }
  return 0;
}

ConfigNode parse(std::string_view text, const Origin& from) {
  const auto origin = std::make_shared<const Origin>(from);
  if (text.size() > kMaxBytes) {
    refuse(from, 0, fmt::format("larger than {} bytes; is this a configuration?", kMaxBytes));
  }
  require_plain_utf8(text, from);
  TreeBuilder builder(origin);
  try {
    // Lets a quote still open at the end be an error: yaml-cpp overlooks one after a line end.
    // Where no quote is open, this is a comment.
    std::istringstream stream(fmt::format("{}{}#", text, text.ends_with('\n') ? "" : "\n"));
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& e) {
    std::string message = shown(e.msg, 200);
    if (const int line = tab_indented_line(text, e.mark.line + 1)) {
      message += fmt::format(" (line {} is indented with a tab; YAML wants spaces)", line);
    }
    refuse_syntax(from, e.mark.line + 1, e.mark.column + 1, message);
  }
  ConfigNode root = builder.take_root();
  root.origin = origin;
  return root;
}

// ---- Overrides ----------------------------------------------------------------------------------

std::vector<std::string> path_of(std::string_view key) {
  std::vector<std::string> path(1);
  for (const char c : key) {
    if (c == '.') {
      path.emplace_back();
    } else {
      path.back() += c;
    }
  }
  return path;
}

/// The list index that a path segment spells, if it spells one.
std::optional<size_t> index_of(std::string_view segment) {
  size_t index = 0;
  const char* end = segment.data() + segment.size();
  const auto [rest, error] = std::from_chars(segment.data(), end, index);
  if (segment.empty() || rest != end || error != std::errc()) return std::nullopt;
  return index;
}

const ConfigNode* find_path(const ConfigNode& root, std::string_view key) {
  const ConfigNode* node = &root;
  for (const std::string& segment : path_of(key)) {
    if (node->type == Type::kList) {
      const auto index = index_of(segment);
      node = index && *index < node->children.size() ? &node->children[*index] : nullptr;
    } else {
      node = node->find(segment);
    }
    if (!node) return nullptr;
  }
  return node;
}

/// The entry of list `list` that `segment` names.
ConfigNode& list_entry(ConfigNode& list, std::string_view segment, std::string_view list_key,
                       const Origin& origin) {
  const auto index = index_of(segment);
  if (!index) {
    refuse(origin, 0,
           fmt::format("{} is a list, expected an index after it, got '{}'", list_key,
                       shown(segment)));
  }
  const size_t size = list.children.size();
  if (*index >= size) {
    refuse(origin, 0,
           fmt::format("{0} has {1} {2}, there is no {0}.{3}", list_key, size,
                       size == 1 ? "entry" : "entries", *index));
  }
  return list.children[*index];
}

/// The child of `parent` under key `segment`, made if there is none.
ConfigNode& map_entry(ConfigNode& parent, const std::string& segment, std::string_view parent_key,
                      const std::shared_ptr<const Origin>& origin) {
  if (!parent_key.empty() && index_of(segment)) {
    refuse(*origin, 0,
           fmt::format("{0} is not a list in the file, there is no {0}.{1}; give all of it, as in "
                       "--set '{0}=[...]'",
                       parent_key, segment));
  }
  if (parent.type == Type::kScalar) {
    ConfigNode kind = parent;
    kind.key = "kind";
    kind.key_line = parent.line;
    parent.was_scalar = true;
    parent.children = {std::move(kind)};
    parent.origin = origin;
  }
  parent.type = Type::kMap;
  for (ConfigNode& child : parent.children) {
    if (child.key == segment) return child;
  }
  parent.children.push_back({.key = segment, .origin = origin});
  return parent.children.back();
}

void apply_override(ConfigNode& root, const std::string& assignment) {
  const Origin from{.name = "--set " + shown(assignment), .is_override = true};
  const size_t equals = assignment.find('=');
  const std::string key = assignment.substr(0, equals);
  const std::vector<std::string> path = path_of(key);
  if (equals == std::string::npos || std::ranges::count(path, "") > 0) {
    refuse(from, 0, "expected KEY=VALUE with a dotted key such as train.epochs=10");
  }
  if (path.size() > kMaxDepth) {
    refuse(from, 0, fmt::format("nested more than {} levels deep", kMaxDepth));
  }
  ConfigNode value = parse(std::string_view(assignment).substr(equals + 1), from);
  const auto origin = value.origin;

  ConfigNode* parent = nullptr;
  ConfigNode* node = &root;
  std::string node_key;
  for (const std::string& segment : path) {
    parent = node;
    node = parent->type == Type::kList ? &list_entry(*parent, segment, node_key, from)
                                       : &map_entry(*parent, segment, node_key, origin);
    node_key = dotted(node_key, segment);
  }
  if (path.back() == "kind" && node->type == Type::kScalar && node->text != value.text) {
    for (ConfigNode& child : parent->children) {
      if (!child.origin->is_override) child.of_other_kind = true;
    }
  }
  value.key = node->key;
  *node = std::move(value);
}

std::string read_file(const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    fail("{}: cannot be read: it is a folder", path.string());
  }
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  // One byte beyond the limit is enough to see that it is exceeded, even of an endless device.
  std::string text(kMaxBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.is_open() || file.bad()) {
    fail("{}: cannot be read: {}", path.string(), std::generic_category().message(errno));
  }
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

ConfigNode parse_with_overrides(std::string_view text, const std::string& name,
                                const std::vector<std::string>& overrides) {
  ConfigNode root = parse(text, {.name = name});
  if (root.type == Type::kNull) {
    root.type = Type::kMap;
  }
  if (root.type != Type::kMap) {
    refuse(root, fmt::format("expected a map of keys, got {}", described(root)));
  }
  root.line = 0;  // the place of the whole is the file
  for (const std::string& assignment : overrides) apply_override(root, assignment);
  return root;
}

// ---- Numbers and bounds -------------------------------------------------------------------------

/// In words, such as "at least 0 and less than 1"; empty if everything is allowed.
template <class T>
std::string bound_text(const Bound<T>& bound) {
  if (bound.min && bound.max && !bound.min_open && !bound.max_open) {
    return fmt::format("between {} and {}", *bound.min, *bound.max);
  }
  std::string text;
  if (bound.min) text = fmt::format("{} {}", bound.min_open ? "more than" : "at least", *bound.min);
  if (bound.min && bound.max) text += " and ";
  if (bound.max) text += fmt::format("{} {}", bound.max_open ? "less than" : "at most", *bound.max);
  return text;
}

template <class T>
bool within(const Bound<T>& bound, T v) {
  return (!bound.min || (bound.min_open ? v > *bound.min : v >= *bound.min)) &&
         (!bound.max || (bound.max_open ? v < *bound.max : v <= *bound.max));
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// YAML's spellings of the values that from_chars does not know.
std::optional<double> special_number(std::string_view text) {
  if (text == ".inf" || text == "+.inf") return kInfinity;
  if (text == "-.inf") return -kInfinity;
  if (text == ".nan") return std::numeric_limits<double>::quiet_NaN();
  return std::nullopt;
}

bool looks_like_number(std::string_view text) {
  if (text.starts_with('-') || text.starts_with('+')) text.remove_prefix(1);
  if (text.starts_with('.')) text.remove_prefix(1);
  return !text.empty() && text.front() >= '0' && text.front() <= '9';
}

enum class NumberError { kNone, kMalformed, kOutOfRange };

template <class T>
NumberError parse_number(std::string_view text, T& v) {
  if (!looks_like_number(text)) return NumberError::kMalformed;
  if (text.front() == '+') text.remove_prefix(1);
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, v);
  if (rest != end) return NumberError::kMalformed;
  return error == std::errc() ? NumberError::kNone : NumberError::kOutOfRange;
}

// ---- Reading ------------------------------------------------------------------------------------

class Reader : public Fields {
 public:
  /// Fills `record` from `map`, which is null where the file does not give it. `known` are the keys
  /// that the record does not list itself.
  static void read(const std::string& file, const ConfigNode* map, const std::string& path,
                   const Record& record, std::vector<std::string> known = {}) {
    Reader reader(file, map, path, std::move(known));
    record.visit(reader);
    reader.refuse_unknown_keys();
    if (!record.check) return;
    try {
      record.check();
    } catch (const Error& e) {
      if (map) {
        // An override that the message names is to blame.
        for (const ConfigNode& child : map->children) {
          if (child.origin->is_override &&
              std::string(e.what()).find(child.key) != std::string::npos) {
            refuse(child, e.what());
          }
        }
        refuse(*map, e.what());
      }
      fail("{}: {}", file, e.what());
    }
  }

 private:
  Reader(const std::string& file, const ConfigNode* map, const std::string& path,
         std::vector<std::string> known)
      : file_(file), map_(map), path_(path), known_(std::move(known)) {}

  const ConfigNode* take(std::string_view name) {
    known_.emplace_back(name);
    return map_ ? map_->find(name) : nullptr;
  }

  void refuse_unknown_keys() const {
    if (!map_) return;
    for (const ConfigNode& child : map_->children) {
      if (std::ranges::find(known_, child.key) != known_.end()) continue;
      const std::vector<std::string_view> candidates(known_.begin(), known_.end());
      const std::string near = nearest(child.key, candidates);
      refuse(*child.origin, child.key_line,
             fmt::format("key '{}' is not known; {}", shown(dotted(path_, child.key)),
                         near.empty() ? "known keys here: " + joined(known_)
                                      : fmt::format("did you mean '{}'?", dotted(path_, near))));
    }
  }

  [[noreturn]] void mismatch(const ConfigNode& node, std::string_view key,
                             std::string_view wanted) const {
    refuse(node, fmt::format("{} must be {}, got {}", key, wanted, described(node)));
  }

  template <class T>
  void number(std::string_view name, T& v, const Bound<T>& bound, std::string_view wanted) {
    const ConfigNode* node = take(name);
    if (!node) return;
    const std::string key = dotted(path_, name);
    if (node->type != Type::kScalar || node->quoted) mismatch(*node, key, wanted);
    T value{};
    if constexpr (std::same_as<T, double>) {
      if (const auto special = special_number(node->text)) {
        if (std::isnan(*special) || (bound.min != *special && bound.max != *special)) {
          mismatch(*node, key, "a finite number");
        }
        v = *special;
        return;
      }
    }
    switch (parse_number(node->text, value)) {
      case NumberError::kMalformed:
        mismatch(*node, key, wanted);
      case NumberError::kOutOfRange:
        mismatch(*node, key, fmt::format("{} that fits in 64 bits", wanted));
      case NumberError::kNone:
        break;
    }
    if (!within(bound, value)) mismatch_bound(*node, key, bound_text(bound));
    v = value;
  }

  [[noreturn]] void mismatch_bound(const ConfigNode& node, std::string_view key,
                                   std::string_view bound) const {
    refuse(node, fmt::format("{} must be {}, got {}", key, bound, shown(node.text)));
  }

  void integer(std::string_view name, int64_t& v, const Bound<int64_t>& bound,
               std::string_view) override {
    number(name, v, bound, "an integer");
  }

  void real(std::string_view name, double& v, const Bound<double>& bound,
            std::string_view) override {
    number(name, v, bound, "a number");
  }

  void boolean(std::string_view name, bool& v, std::string_view) override {
    const ConfigNode* node = take(name);
    if (!node) return;
    const bool plain = node->type == Type::kScalar && !node->quoted;
    if (!plain || (node->text != "true" && node->text != "false")) {
      mismatch(*node, dotted(path_, name), "true or false");
    }
    v = node->text == "true";
  }

  void text(std::string_view name, std::string& v, std::string_view) override {
    const ConfigNode* node = take(name);
    if (!node) return;
    if (node->type != Type::kScalar) {
      mismatch(*node, dotted(path_, name), "a text (an empty one is '')");
    }
    v = node->text;
  }

  size_t choose(std::string_view name, size_t current, std::span<const std::string_view> names,
                std::string_view) override {
    const ConfigNode* node = take(name);
    return node ? position(*node, dotted(path_, name), names) : current;
  }

  static size_t position(const ConfigNode& node, const std::string& key,
                         std::span<const std::string_view> names) {
    if (node.type == Type::kScalar) {
      const auto found = std::ranges::find(names, node.text);
      if (found != names.end()) return static_cast<size_t>(found - names.begin());
    }
    const std::string near = node.type == Type::kScalar ? nearest(node.text, names) : "";
    refuse(node, fmt::format("{} must be one of {}; got {}{}", key, joined(names), described(node),
                             near.empty() ? "" : fmt::format("; did you mean '{}'?", near)));
  }

  /// `node` as a map; null for one that is not given or has no keys.
  const ConfigNode* as_map(const ConfigNode* node, const std::string& key) const {
    if (!node || node->type == Type::kNull) return nullptr;
    if (node->was_scalar) {
      refuse(*node, fmt::format("{} must be a map, got '{}'", key, shown(node->text)));
    }
    if (node->type != Type::kMap) mismatch(*node, key, "a map");
    return node;
  }

  void open_section(std::string_view name, const Record& record, std::string_view) override {
    const std::string key = dotted(path_, name);
    read(file_, as_map(take(name), key), key, record);
  }

  void open_list(std::string_view name, size_t size, const List& list, std::string_view) override {
    const ConfigNode* node = take(name);
    const std::string key = dotted(path_, name);
    if (node) {
      if (node->type != Type::kList) mismatch(*node, key, "a list");
      size = node->children.size();
      list.resize(size);
    }
    for (size_t i = 0; i < size; ++i) {
      const std::string item_key = fmt::format("{}.{}", key, i);
      read(file_, as_map(node ? &node->children[i] : nullptr, item_key), item_key, list.item(i));
    }
  }

  void open_variant(std::string_view name, const std::string& current,
                    std::span<const KindName> kinds, const Variant& variant,
                    std::string_view) override {
    const ConfigNode* node = take(name);
    const std::string key = dotted(path_, name);
    std::vector<std::string_view> names;
    for (const KindName& kind : kinds) names.push_back(kind.name);

    const bool is_map = node && node->type == Type::kMap;
    const ConfigNode* kind = is_map ? node->find("kind") : node;
    if (kind) {
      const size_t i = position(*kind, is_map ? key + ".kind" : key, names);
      if (names[i] != current) variant.make(i);
    } else if (current.empty()) {
      if (!node) return;
      refuse(*node, fmt::format("{} must have a 'kind', one of {}", key, joined(names)));
    }
    if (!is_map) return read(file_, nullptr, key, variant.value(), {"kind"});
    ConfigNode own = *node;
    std::erase_if(own.children, [](const ConfigNode& child) { return child.of_other_kind; });
    read(file_, &own, key, variant.value(), {"kind"});
  }

  const std::string& file_;
  const ConfigNode* map_;
  const std::string& path_;
  std::vector<std::string> known_;
};

// ---- Printing -----------------------------------------------------------------------------------

/// The shortest text that reads back as the same double, always with a point, which YAML 1.1
/// readers need to take it for a number.
std::string number_text(double v) {
  if (std::isnan(v)) return ".nan";
  if (std::isinf(v)) return v > 0 ? ".inf" : "-.inf";
  std::string text = fmt::format("{}", v);
  if (text.find('.') == std::string::npos) text.insert(std::min(text.find('e'), text.size()), ".0");
  return text;
}

/// Whether a text can stand without quotes in any YAML context and still be a text.
bool is_plain_text(std::string_view text) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  if (text.empty() || text.size() > 500 || !(is_letter(text.front()) || text.front() == '/')) {
    return false;
  }
  for (const char c : text) {
    const bool is_safe = is_letter(c) || (c >= '0' && c <= '9') ||
                         std::string_view("_-./+").find(c) != std::string_view::npos;
    if (!is_safe) return false;
  }
  const std::string lower = lower_case(text);
  for (const std::string_view word :
       {"null", "true", "false", "yes", "no", "on", "off", "y", "n"}) {
    if (lower == word) return false;
  }
  return true;
}

std::string text_in_yaml(std::string_view text) {
  if (is_plain_text(text)) return std::string(text);
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (byte < 0x20 || byte == 0x7F) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out + '"';
}

class Printer : public Fields {
 public:
  /// The fields of `record`: one `key: value` a line, indented; in flow style joined by commas.
  static std::string print(const Record& record, size_t indent, bool flow) {
    Printer printer(indent, flow);
    record.visit(printer);
    return printer.out_;
  }

 private:
  Printer(size_t indent, bool flow) : indent_(indent), flow_(flow) {}

  void put(std::string_view name, std::string_view value) {
    if (flow_) {
      out_ += fmt::format("{}{}: {}", out_.empty() ? "" : ", ", name, value);
    } else {
      out_ += fmt::format("{}{}: {}\n", std::string(indent_, ' '), name, value);
    }
  }

  /// Opens a block under a key.
  void put_block(std::string_view name, std::string_view block) {
    out_ += fmt::format("{}{}:\n{}", std::string(indent_, ' '), name, block);
  }

  void integer(std::string_view name, int64_t& v, const Bound<int64_t>&,
               std::string_view) override {
    put(name, fmt::format("{}", v));
  }
  void real(std::string_view name, double& v, const Bound<double>&, std::string_view) override {
    put(name, number_text(v));
  }
  void boolean(std::string_view name, bool& v, std::string_view) override {
    put(name, v ? "true" : "false");
  }
  void text(std::string_view name, std::string& v, std::string_view) override {
    put(name, text_in_yaml(v));
  }
  size_t choose(std::string_view name, size_t current, std::span<const std::string_view> names,
                std::string_view) override {
    put(name, text_in_yaml(names[current]));
    return current;
  }

  void open_section(std::string_view name, const Record& record, std::string_view) override {
    const std::string body = print(record, indent_ + 2, flow_);
    if (flow_ || body.empty()) {
      put(name, "{" + body + "}");
    } else {
      put_block(name, body);
    }
  }

  void open_list(std::string_view name, size_t size, const List& list, std::string_view) override {
    std::string block;
    std::vector<std::string> items;
    for (size_t i = 0; i < size; ++i) {
      const std::string body = print(list.item(i), indent_ + 4, flow_);
      items.push_back("{" + body + "}");
      block += std::string(indent_ + 2, ' ') + "- ";
      block += body.empty() || flow_ ? items.back() + "\n" : body.substr(indent_ + 4);
    }
    if (flow_ || size == 0) {
      put(name, "[" + joined(items) + "]");
    } else {
      put_block(name, block);
    }
  }

  void open_variant(std::string_view name, const std::string& current, std::span<const KindName>,
                    const Variant& variant, std::string_view) override {
    if (current.empty()) return;
    const std::string body = print(variant.value(), 0, true);
    put(name,
        fmt::format("{{kind: {}{}{}}}", text_in_yaml(current), body.empty() ? "" : ", ", body));
  }

  std::string out_{};
  size_t indent_;
  bool flow_;
};

// ---- Documenting --------------------------------------------------------------------------------

class Documenter : public Fields {
 public:
  static std::string document(const Record& record, const std::string& path = "") {
    std::string rows;
    std::string kinds;
    Documenter documenter(path, rows, kinds);
    record.visit(documenter);
    if (rows.empty()) return "No keys of its own.\n" + kinds;
    return "| Key | Type | Default | Allowed | Meaning |\n|---|---|---|---|---|\n" + rows + kinds;
  }

 private:
  /// Appends to `rows` the table rows, and to `kinds` a section for each kind of each variant.
  Documenter(const std::string& path, std::string& rows, std::string& kinds)
      : path_(path), rows_(rows), kinds_(kinds) {}

  static std::string code(std::string_view text) { return fmt::format("`{}`", text); }

  static std::string cell(std::string_view text) {
    std::string out;
    for (const char c : text) {
      if (c == '|') out += '\\';
      out += c == '\n' ? ' ' : c;
    }
    return out;
  }

  template <class Names>
  static std::string codes(const Names& names) {
    std::vector<std::string> out;
    for (const std::string_view name : names) out.push_back(code(name));
    return joined(out);
  }

  void row(std::string_view name, std::string_view type, std::string_view value,
           std::string_view allowed, std::string_view help) {
    rows_ += fmt::format("| {} | {} | {} | {} | {} |\n", code(dotted(path_, name)), type,
                         cell(value), cell(allowed), cell(help));
  }

  void nested(const std::string& path, const Record& record) {
    Documenter documenter(path, rows_, kinds_);
    record.visit(documenter);
  }

  void integer(std::string_view name, int64_t& v, const Bound<int64_t>& bound,
               std::string_view help) override {
    row(name, "integer", code(fmt::format("{}", v)), bound_text(bound), help);
  }
  void real(std::string_view name, double& v, const Bound<double>& bound,
            std::string_view help) override {
    row(name, "number", code(fmt::format("{}", v)), bound_text(bound), help);
  }
  void boolean(std::string_view name, bool& v, std::string_view help) override {
    row(name, "boolean", v ? "`true`" : "`false`", "`true`, `false`", help);
  }
  void text(std::string_view name, std::string& v, std::string_view help) override {
    row(name, "text", code(text_in_yaml(v)), "", help);
  }
  size_t choose(std::string_view name, size_t current, std::span<const std::string_view> names,
                std::string_view help) override {
    row(name, "choice", code(names[current]), codes(names), help);
    return current;
  }

  void open_section(std::string_view name, const Record& record, std::string_view help) override {
    row(name, "map", "", "", help);
    nested(dotted(path_, name), record);
  }

  void open_list(std::string_view name, size_t size, const List& list,
                 std::string_view help) override {
    row(name, "list of maps", fmt::format("{} {}", size, size == 1 ? "entry" : "entries"), "",
        help);
    nested(dotted(path_, name) + ".N", list.example);
  }

  void open_variant(std::string_view name, const std::string& current,
                    std::span<const KindName> kinds, const Variant& variant,
                    std::string_view help) override {
    std::vector<std::string_view> names;
    for (const KindName& kind : kinds) names.push_back(kind.name);
    row(name, "kind", current.empty() ? "" : code(current), codes(names), help);
    const std::string key = dotted(path_, name);
    for (size_t i = 0; i < kinds.size(); ++i) {
      const Record record = kinds[i].name == current ? variant.value() : variant.example(i);
      kinds_ += fmt::format("\n### `{}: {}`\n\n{}\n\n{}", key, kinds[i].name, kinds[i].help,
                            document(record, key));
    }
  }

  const std::string& path_;
  std::string& rows_;
  std::string& kinds_;
};

// ---- Nearest match ------------------------------------------------------------------------------

/// Insertions, deletions, substitutions and swaps of neighbours that turn a into b.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

}  // namespace

std::string nearest(std::string_view word, std::span<const std::string_view> candidates) {
  const std::string wanted = lower_case(word);
  std::string_view best;
  size_t best_distance = std::numeric_limits<size_t>::max();
  for (const std::string_view candidate : candidates) {
    const std::string name = lower_case(candidate);
    const auto [shorter, longer] = std::minmax({wanted.size(), name.size()});
    // A third of the letters may be wrong, and a word may go on: `batch_size` for `batch`.
    const size_t tolerance = std::max<size_t>(1, longer / 3);
    const bool continues = shorter >= 3 && (wanted.starts_with(name) || name.starts_with(wanted));
    if (!continues && longer - shorter > tolerance) continue;
    const size_t distance = continues ? longer - shorter : edit_distance(wanted, name);
    if ((continues || distance <= tolerance) && distance < std::max(shorter, longer) &&
        distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return std::string(best);
}

ConfigSource ConfigSource::from_file(const std::filesystem::path& path,
                                     const std::vector<std::string>& overrides) {
  return from_string(read_file(path), path.string(), overrides);
}

ConfigSource ConfigSource::from_string(std::string_view yaml, std::string name,
                                       const std::vector<std::string>& overrides) {
  ConfigSource source;
  source.root_ = std::make_shared<ConfigNode>(parse_with_overrides(yaml, name, overrides));
  source.name_ = std::move(name);
  return source;
}

bool ConfigSource::empty() const {
  return root_->children.empty();
}

bool ConfigSource::has(std::string_view key) const {
  return find_path(*root_, key) != nullptr;
}

std::string ConfigSource::text_at(std::string_view key, std::string_view otherwise) const {
  const ConfigNode* node = find_path(*root_, key);
  if (!node) return std::string(otherwise);
  if (node->type != Type::kScalar) {
    refuse(*node, fmt::format("{} must be a text, got {}", key, described(*node)));
  }
  return node->text;
}

void read_record(const ConfigSource& source, const Fields::Record& record) {
  Reader::read(source.name(), &source.root(), "", record);
}

std::string print_record(const Fields::Record& record) {
  return Printer::print(record, 0, false);
}

std::string document_record(const Fields::Record& record) {
  return Documenter::document(record);
}

}  // namespace primal
