#pragma once

namespace primal {

/// From now on the first SIGINT or SIGTERM is remembered, for the program to finish what it does;
/// the second ends the process at once with status 128 + signal. A file that outgrows the file-size
/// limit is a failed write from now on, not the end of the process.
void catch_stop_signals();

/// The signal that asked to stop, or 0.
int stop_signal();

}  // namespace primal
