internal import EarshotHTTP
internal import EarshotLoop
internal import EarshotWire
internal import Glibc
internal import LibCrypto

/// What earlier attempts brought of a body, in a file that the broker gave this one to go on with.
///
/// The file holds bytes of that one representation and never of another: what comes from its first byte goes into a
/// file of another name. So the broker knows by the name what it finds there, even if this process dies at any moment.
final class LentPart {
    let file: SpoolFile
    let kept: PartialBody
    /// Set once all of it has gone through.
    private var hash: SHA256?

    /// Nil if the file is not there as the broker says, or is of no use.
    init?(_ job: Job, in spool: SpoolFolder) {
        guard let resume = job.resume,
            let validator = Validator(ifRange: resume.validator, now: Int64(time(nil))),
            let file = try? SpoolFile(SpoolFile.name(job.attempt, pid: getpid()), in: spool, behind: resume.bytes)
        else { return nil }
        self.file = file
        kept = PartialBody(
            keptBytes: Int64(resume.bytes), totalBytes: resume.total.map { Int64($0) }, validator: validator)
    }

    func hashed(_ hash: consuming SHA256) {
        self.hash = consume hash
    }

    /// The body so far, to be gone on with; nil if it was not hashed.
    func store(maximum: Int?) -> BodyStore? {
        guard let hash = hash.take() else { return nil }
        return BodyStore(resuming: file, hash, count: Int(kept.keptBytes), maximum: maximum)
    }
}
