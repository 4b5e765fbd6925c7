import Foundation
import Testing

/// One head of `protocols/vectors`; protocols/README.md describes the folders.
struct Vector: CustomTestStringConvertible {
    let side: Side
    /// Name of the file without its extension.
    let name: String
    /// Code of the rejection; nil for a valid head.
    let code: String?
    let head: [UInt8]

    var testDescription: String { "\(side.rawValue)/\(name)" }

    /// The verb, found without a decoder.
    var verb: String { String(decoding: head.prefix { $0 > 0x20 }, as: UTF8.self) }

    /// Last operand of the first line.
    var lastOperand: String {
        String(decoding: head.prefix { $0 != 0x0a }.split(separator: 0x20).last ?? [], as: UTF8.self)
    }

    /// Names of the fields before the empty line.
    var fields: Set<String> { Set(fieldsInOrder) }

    var fieldsInOrder: [String] {
        let lines = String(decoding: head, as: UTF8.self).split(separator: "\n", omittingEmptySubsequences: false)
        let named = lines.dropFirst().prefix { !$0.isEmpty }
        let fields = named.compactMap { $0.split(separator: ":", maxSplits: 1).first.map { String($0) } }
        // The first field of any message of EAR/1 may be its number; the tables do not repeat it.
        let isNumbered = side == .client && fields.first == "number" || side == .broker && fields.first == "to"
        return isNumbered ? Array(fields.dropFirst()) : fields
    }

    // MARK: The folders

    /// Returns the vectors of `good` or `loose`, which have a folder for each side.
    static func accepted(_ folder: String) throws -> [Vector] {
        try Side.allCases.flatMap { side in
            try files("\(folder)/\(side.rawValue)").map { name, head in
                Vector(side: side, name: name, code: nil, head: head)
            }
        }
    }

    /// Returns the vectors of `bad`, which has a folder for each side, with one for each code.
    static func refused() throws -> [Vector] {
        try Side.allCases.flatMap { side in
            try DocumentFolder.names("protocols/vectors/bad/\(side.rawValue)").flatMap { code in
                try files("bad/\(side.rawValue)/\(code)").map { name, head in
                    Vector(side: side, name: name, code: code, head: head)
                }
            }
        }
    }

    /// Returns the heads of `generated.tsv`, which are too long for files.
    static func generated() throws -> [Vector] {
        let lines = try DocumentFolder.text("protocols/vectors/generated.tsv").split(separator: "\n").dropFirst()
        return try lines.map { line in
            let columns = line.split(separator: "\t", omittingEmptySubsequences: false).map {
                $0.replacingOccurrences(of: "\\n", with: "\n")
            }
            guard columns.count == 7, let side = Side(rawValue: columns[0]), let count = Int(columns[5]) else {
                throw DocumentFolder.Fault(description: "generated.tsv: \(line.prefix(80))")
            }
            let text = columns[3] + String(repeating: columns[4], count: count) + columns[6]
            return Vector(
                side: side, name: columns[2], code: columns[1] == "good" ? nil : columns[1], head: Array(text.utf8))
        }
    }

    private static func files(_ folder: String) throws -> [(String, [UInt8])] {
        try DocumentFolder.names("protocols/vectors/\(folder)").map { name in
            guard name.hasSuffix(".ear") else {
                throw DocumentFolder.Fault(description: "\(folder)/\(name) is no vector")
            }
            return (String(name.dropLast(4)), try DocumentFolder.bytes("protocols/vectors/\(folder)/\(name)"))
        }
    }
}
