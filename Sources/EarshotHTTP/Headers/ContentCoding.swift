internal import EarshotWire

/// Content coding that workers accept and decode: RFC 9110, section 8.4.1.
public enum ContentCoding: Hashable, Sendable, CaseIterable {
    case gzip
    case deflate
    case brotli
    case zstd

    /// Value of `Accept-Encoding` for a request of the client that has none of its own.
    ///
    /// A range counts bytes of the representation, and a part of a coded one cannot be decoded. The Fetch standard,
    /// "HTTP-network-or-cache fetch", therefore sends `identity` with `Range`.
    public static func accepted(for fields: HeaderFields) -> String {
        fields.contains("range") ? "identity" : "gzip, deflate, br, zstd"
    }

    /// Returns the coding of this name, in any case.
    init?(_ name: ArraySlice<UInt8>) {
        switch String(decoding: name.map(\.lowercased), as: UTF8.self) {
        case "gzip", "x-gzip": self = .gzip
        case "deflate": self = .deflate
        case "br": self = .brotli
        case "zstd": self = .zstd
        default: return nil
        }
    }
}

extension HeaderFields {
    /// Content codings to decode, the one applied last first. Empty if one is unknown or there are more than
    /// `HTTPLimits.contentCodings`: the body is not decoded then. Nor is a gzip archive, which the server sends as a
    /// coded body of that type.
    public var codingsToDecode: [ContentCoding] {
        var codings: [ContentCoding] = []
        for name in FieldList.members(valueBytes(named: "content-encoding")) {
            if name.map(\.lowercased).elementsEqual("identity".utf8) { continue }
            guard let coding = ContentCoding(name), codings.count < HTTPLimits.contentCodings else { return [] }
            codings.append(coding)
        }
        return codings == [.gzip] && hasGzipMediaType ? [] : codings.reversed()
    }

    /// Whether the media type is that of gzip: RFC 6713, and its older name.
    private var hasGzipMediaType: Bool {
        let type = valueBytes(named: "content-type").last?.prefix { $0 != UInt8(ascii: ";") } ?? []
        let name = String(decoding: type.filter { !$0.isBlank }.map(\.lowercased), as: UTF8.self)
        return name == "application/gzip" || name == "application/x-gzip"
    }

    /// Whether a response has a transfer coding other than `chunked`, which workers never request: RFC 9112, section
    /// 7.4.
    public var hasUnrequestedTransferCoding: Bool {
        !FieldList.members(valueBytes(named: "transfer-encoding")).allSatisfy { name in
            let name = name.map(\.lowercased)
            return name.elementsEqual("chunked".utf8) || name.elementsEqual("identity".utf8)
        }
    }
}
