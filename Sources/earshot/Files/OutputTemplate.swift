internal import EarshotClient
internal import EarshotHTTP

/// Template of a file's path below the output directory, such as `{host}/{path}`.
struct OutputTemplate {
    /// Placeholder in braces.
    enum Field: String, CaseIterable {
        /// Host of the URL.
        case host
        /// Path of the URL, with its directories.
        case path
        /// Last part of the URL's path.
        case name
        /// Index in the list, from 1.
        case itemNumber = "n"
        /// SHA-256 of the body.
        case sha256
    }

    private enum Piece {
        case text(String)
        case field(Field)
    }

    /// Invalid template; the description names the fault and the permitted form.
    struct Fault: Error, CustomStringConvertible {
        let description: String
    }

    private let pieces: [Piece]

    init(_ text: String) throws(Fault) {
        guard RelativePath.isInside(text) else { throw Fault(description: "give a relative path without '..'") }
        var pieces: [Piece] = []
        var rest = text[...]
        while let open = rest.firstIndex(of: "{") {
            pieces.append(.text(String(rest[..<open])))
            guard let close = rest[open...].firstIndex(of: "}"),
                let field = Field(rawValue: String(rest[rest.index(after: open)..<close]))
            else {
                let names = Field.allCases.map { "{\($0.rawValue)}" }.joined(separator: ", ")
                throw Fault(description: "the placeholders are \(names)")
            }
            pieces.append(.field(field))
            rest = rest[rest.index(after: close)...]
        }
        pieces.append(.text(String(rest)))
        self.pieces = pieces
    }

    /// Whether the path depends on the body.
    var needsBody: Bool { pieces.contains { if case .field(.sha256) = $0 { true } else { false } } }

    /// Returns the path for a URL. Its parts are safe file names.
    ///
    /// - Parameters:
    ///   - index: index in the list, from 1.
    ///   - sha256: hash of the body; nil if it is unknown.
    func path(of url: String, index: Int, sha256: String?) -> String {
        let text = pieces.map { piece in
            switch piece {
            case .text(let text): text
            case .field(.host): SafeFileNames.safeName((try? FetchURL(url)).map { String($0.host) } ?? "unknown-host")
            case .field(.path): SafeFileNames.relativePath(ofURL: url)
            case .field(.name): SafeFileNames.fileName(ofURL: url)
            case .field(.itemNumber): String(index)
            case .field(.sha256): sha256 ?? "unknown-hash"
            }
        }.joined()
        return SafeFileNames.safePath(text)
    }
}
