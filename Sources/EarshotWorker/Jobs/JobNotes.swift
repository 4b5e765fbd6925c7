/// Notes that runs leave, from inside libcurl, for the worker's current pass.
final class JobNotes {
    /// Runs that have bytes to report in a PROGRESS.
    var progressed: [JobRun] = []
    /// Runs with so many bytes that their PROGRESS cannot wait.
    var grown: [JobRun] = []
    /// Runs with enough unhashed body for a hash thread.
    var hashable: [JobRun] = []
    /// Runs that wait for their rate.
    var paced: [JobRun] = []
    /// Runs that received a redirect whose body is not needed.
    var redirected: [JobRun] = []
    /// Runs with bytes that this pass had no budget to decode, in the order of their turns.
    var decodable: [JobRun] = []
    /// Decoded bytes that this pass may still produce.
    var decodingBudget = Limits.decodedBytesPerPass
    /// Output buffer of one decoding step; empty before the first.
    var decoded: [UInt8] = []
}
