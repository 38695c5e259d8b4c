#pragma once

namespace primal {

/// From now on the first SIGINT or SIGTERM is remembered, for the program to finish what it does;
/// the second ends the process at once with status 128 + signal.
void catch_stop_signals();

/// The signal that asked to stop, or 0.
int stop_signal();

}  // namespace primal
