internal import EarshotHTTP
internal import EarshotLoop
internal import Glibc

/// Validator and lengths of the body in a file that `--continue` has written, as an extended attribute of the file.
///
/// With it a later run continues bytes of the same version only: RFC 9110, sections 13.1.5 and 15.3.7.3. A file system
/// without such attributes keeps none.
struct PartialBodyRecord: Equatable {
    private static let fileAttribute = FileAttribute("user.earshot.body", maximumBytes: maximumRecordBytes)
    /// Maximum length of a record in bytes. Longer ones are not kept: the attributes of a file share one block.
    private static let maximumRecordBytes = 1_024

    /// Number of bytes in the file.
    let storedLength: Int
    /// Number of bytes of the complete body; nil if the server did not announce it.
    let totalLength: Int?
    /// Strong validator in the form of `If-Range`.
    let validator: String

    /// Nil for a response whose bytes no later one can continue: without a strong validator, or with a content coding.
    init?(_ fields: HeaderFields, length: Int, total: Int?) {
        guard fields.hasIdentityCoding, let text = Validator(response: fields, now: Int64(time(nil))).ifRange else {
            return nil
        }
        self.init(length: length, total: total, validator: text)
    }

    private init?(length: Int, total: Int?, validator: String) {
        self.storedLength = length
        self.totalLength = total
        self.validator = validator
        guard text.utf8.count <= Self.maximumRecordBytes else { return nil }
    }

    /// Parses the form `LENGTH/TOTAL VALIDATOR`. Any program may have written it.
    init?(_ text: String) {
        let parts = text.split(separator: " ", maxSplits: 1).map(String.init)
        let numbers = parts.first?.split(separator: "/", omittingEmptySubsequences: false) ?? []
        guard parts.count == 2, numbers.count == 2, let length = Int(numbers[0]), length >= 0,
            numbers[1] == "-" || Int(numbers[1]).map({ $0 >= length }) == true,
            Validator(ifRange: parts[1], now: Int64(time(nil))) != nil
        else { return nil }
        self.init(length: length, total: Int(numbers[1]), validator: parts[1])
    }

    var text: String { "\(storedLength)/\(totalLength.map { String($0) } ?? "-") \(validator)" }

    /// Whether the file holds a part of its body only, as far as that is known.
    var isPartial: Bool { totalLength != storedLength }

    /// The beginning of a body, for the rule of resumption.
    var partialBody: PartialBody? {
        Validator(ifRange: validator, now: Int64(time(nil))).map {
            PartialBody(keptBytes: Int64(storedLength), totalBytes: totalLength.map { Int64($0) }, validator: $0)
        }
    }

    /// Returns the record after more bytes of the body.
    func adding(bytes count: Int) -> PartialBodyRecord? {
        PartialBodyRecord(length: storedLength + count, total: totalLength, validator: validator)
    }

    /// Whether this part of a complete transfer may replace a file: a part of another version, or a shorter one. A
    /// complete body, and a file of unknown version, stays until a new one is complete.
    func canReplace(_ old: PartialBodyRecord?) -> Bool {
        guard let old, old.isPartial else { return false }
        return old.validator != validator || old.storedLength < storedLength
    }

    /// Returns the record of a file with this length; nil without one, and if another program has changed the length.
    static func read(_ path: String, length: Int) -> PartialBodyRecord? {
        let text = fileAttribute.value(ofFile: path).map { String(decoding: $0, as: UTF8.self) }
        return text.flatMap { PartialBodyRecord($0) }.flatMap { $0.storedLength == length ? $0 : nil }
    }

    /// Keeps a record with an open file, or removes an earlier one.
    ///
    /// - Returns: whether the file system did so.
    @discardableResult
    static func setRecord(_ record: PartialBodyRecord?, of descriptor: Int32) -> Bool {
        fileAttribute.setValue(record.map { Array($0.text.utf8) }, ofDescriptor: descriptor)
    }

    /// Keeps the record of a complete body with its file. Removes that of an earlier body.
    static func keepRecord(of fields: HeaderFields?, length: Int, at path: String) {
        let record = fields.flatMap { PartialBodyRecord($0, length: length, total: length) }
        fileAttribute.setValue(record.map { Array($0.text.utf8) }, ofFile: path)
    }
}
