internal import EarshotHTTP
internal import EarshotLoop
internal import EarshotWire
internal import Glibc
internal import LibCrypto

/// Partial body of earlier attempts, in a file that the broker offered to this attempt for resumption.
///
/// The file contains only bytes of one representation. A body that starts over goes into a file with another name. The
/// broker thus knows the content of a file from its name, even if this process dies at any moment.
final class OfferedPart {
    let file: SpoolFile
    let partialBody: PartialBody
    /// SHA-256 that the part must have; nil if it needs no check.
    private let expectedSHA256: String?
    /// Nil until all bytes of the part are hashed.
    private var completedHash: SHA256?

    /// Nil if the file does not match the broker's description, or the validator cannot be used.
    init?(_ job: Job, in spool: SpoolFolder) {
        let name = SpoolName.partFile(of: job.attempt, pid: getpid())
        guard let resume = job.resume,
            let validator = Validator(ifRange: resume.validator, now: Int64(time(nil))),
            let file = try? SpoolFile(name, in: spool, resumingAt: resume.availableBytes)
        else { return nil }
        self.file = file
        expectedSHA256 = resume.sha256
        partialBody = PartialBody(
            keptBytes: Int64(resume.availableBytes), totalBytes: resume.totalBytes.map { Int64($0) },
            validator: validator)
    }

    /// Takes the hash of all bytes of the part.
    ///
    /// - Returns: false if the bytes are not those of the broker's description.
    func verifyHash(_ hash: consuming SHA256) -> Bool {
        if let expectedSHA256, hash.copy().finalize().hex != expectedSHA256 { return false }
        self.completedHash = consume hash
        return true
    }

    /// Returns the hash of the part; nil if it is not hashed. Can be called once.
    func takeHash() -> SHA256? { completedHash.take() }
}
