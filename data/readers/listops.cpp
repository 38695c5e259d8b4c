#include "data/readers/listops.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/error.h"
#include "data/readers/lines.h"

namespace primal {
namespace {

constexpr uint8_t kMin = 10, kMax = 11, kMedian = 12, kSum = 13, kClose = 14, kFirst = 15;

bool is_digit(uint8_t symbol) {
  return symbol < 10;
}

int apply(uint8_t operation, std::vector<int>& arguments) {
  switch (operation) {
    case kMin:
      return *std::ranges::min_element(arguments);
    case kMax:
      return *std::ranges::max_element(arguments);
    case kMedian: {
      std::ranges::sort(arguments);
      const size_t half = arguments.size() / 2;
      return arguments.size() % 2 == 1 ? arguments[half]
                                       : (arguments[half - 1] + arguments[half]) / 2;
    }
    case kSum:
      return std::accumulate(arguments.begin(), arguments.end(), 0) % 10;
    case kFirst:
      return arguments.front();
    default:
      return arguments.back();
  }
}

}  // namespace

std::vector<uint8_t> tokenize_listops(std::string_view expression) {
  std::vector<uint8_t> symbols;
  while (true) {
    expression.remove_prefix(std::min(expression.find_first_not_of(' '), expression.size()));
    if (expression.empty()) return symbols;
    const std::string_view word = expression.substr(0, expression.find(' '));
    expression.remove_prefix(word.size());
    if (word == "(" || word == ")") continue;
    const auto* const found = std::ranges::find(kListOpsSymbols, word);
    if (found == kListOpsSymbols.end()) fail("{} is not a ListOps symbol", quote(word));
    symbols.push_back(static_cast<uint8_t>(found - kListOpsSymbols.begin()));
  }
}

int evaluate_listops(std::span<const uint8_t> symbols) {
  // The operators that are open, each with its arguments so far; the outermost is the expression.
  struct Open {
    uint8_t operation;
    std::vector<int> arguments;
  };
  std::vector<Open> open{{0, {}}};
  for (const uint8_t symbol : symbols) {
    if (is_digit(symbol)) {
      open.back().arguments.push_back(symbol);
    } else if (symbol != kClose) {
      open.push_back({symbol, {}});
    } else {
      if (open.size() == 1) fail("a ']' closes nothing");
      Open& done = open.back();
      if (done.arguments.empty()) fail("{} has no arguments", kListOpsSymbols[done.operation]);
      const int value = apply(done.operation, done.arguments);
      open.pop_back();
      open.back().arguments.push_back(value);
    }
  }
  if (open.size() > 1) fail("{} is not closed", kListOpsSymbols[open.back().operation]);
  if (open.front().arguments.size() != 1) {
    fail("holds {} expressions, not one", open.front().arguments.size());
  }
  return open.front().arguments.front();
}

std::optional<ListOpsRow> ListOpsReader::line(std::string_view text, int64_t number) {
  if (text.empty()) return {};
  const auto error = [&](std::string_view what) { fail("lra: {}:{}: {}", name_, number, what); };
  if (number == 1 && text == "Source\tTarget") {
    source_first_ = true;
    return {};
  }
  const size_t tab = text.find('\t');
  if (tab == text.npos || text.find('\t', tab + 1) != text.npos) {
    error("expected two columns with a tab between: an expression and its value");
  }
  std::string_view expression = text.substr(tab + 1);
  std::string_view label = text.substr(0, tab);
  if (source_first_) std::swap(expression, label);
  if (label.size() != 1 || label[0] < '0' || label[0] > '9') {
    error(fmt::format("expected a value from 0 to 9 in the {} column, found {}",
                      source_first_ ? "second" : "first", quote(label)));
  }
  ListOpsRow row;
  row.label = label[0] - '0';
  int value = 0;
  try {
    row.symbols = tokenize_listops(expression);
    value = evaluate_listops(row.symbols);
  } catch (const Error& problem) {
    error(fmt::format("the expression: {}", problem.what()));
  }
  if (value != row.label) {
    error(fmt::format("the label is {}, but the expression's value is {}", row.label, value));
  }
  return row;
}

}  // namespace primal
