/// Where runs note, from inside libcurl, what the worker is to look at in this pass.
final class JobNotes {
    /// The runs whose bytes a PROGRESS should tell of.
    var progressed: [JobRun] = []
    /// The runs whose body brought enough for a thread to hash.
    var hashable: [JobRun] = []
}
