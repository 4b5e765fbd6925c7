/// Where runs note, from inside libcurl, what the worker is to look at in this pass.
final class JobNotes {
    /// The runs whose bytes a PROGRESS should tell of.
    var progressed: [JobRun] = []
    /// The runs whose body brought enough for a thread to hash.
    var hashable: [JobRun] = []
    /// Runs that received a redirect whose body no request needs.
    var redirected: [JobRun] = []
    /// The runs with bytes to decode that this pass had no room for, in the order of their turns.
    var decodable: [JobRun] = []
    /// Decoded bytes that this pass has room for.
    var decodingBudget = Limits.decodedBytesPerPass
    /// Room for one step of a decoder; empty until the first.
    var decoded: [UInt8] = []
}
