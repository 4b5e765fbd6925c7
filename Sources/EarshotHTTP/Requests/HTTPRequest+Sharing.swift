public import EarshotWire

/// Fields in which requests may differ that share a fetch, if the worker decodes nothing. Whether the response suits
/// each of them is known when it arrives.
extension HTTPRequest {
    /// The fields that requests must have in common to share a fetch, in canonical form.
    ///
    /// With `decode: no` those are left out that describe the client or its preferences, and those that only choose the
    /// cache mode.
    ///
    /// - Parameter whole: Whether no field is left out.
    public func sharedFields(whole: Bool) -> [UInt8] {
        guard !route.decodes, !whole else { return fields.canonical }
        let hasMode = CacheControl(request: fields).mode != nil
        return fields.canonical { field in
            !Self.isPreference(field) && !(hasMode && (field.isNamed("cache-control") || field.isNamed("pragma")))
        }
    }

    /// Cache mode of the request: the one that FETCH names or, with `decode: no` and without one, that of
    /// `Cache-Control` and `Pragma`.
    public func mode(_ named: CacheMode) -> CacheMode {
        guard !route.decodes, named == .default else { return named }
        return CacheControl(request: fields).mode ?? named
    }

    /// Returns whether the response to another request, which differs in fields that `sharedFields` leaves out, suits
    /// this one: `Vary` names none of those that differ, and this client accepts its coding and type.
    public func isSuited(by response: HeaderFields, to other: HTTPRequest) -> Bool {
        let (own, others) = (preferences, other.preferences)
        guard own != others else { return true }
        guard let key = VaryKey(response: response, request: own),
            key == VaryKey(response: response, request: others)
        else { return false }
        return fields.accept(response)
    }

    private var preferences: HeaderFields {
        var fields = fields
        fields.removeAll { !Self.isPreference($0) }
        return fields
    }

    private static func isPreference(_ field: HeaderField) -> Bool {
        preferenceNames.contains { field.isNamed($0) }
            || preferencePrefixes.contains { prefix in
                field.name.prefix(prefix.utf8.count).map(\.lowercased).elementsEqual(prefix.utf8)
            }
    }

    private static let preferenceNames = [
        "accept", "accept-encoding", "accept-language", "user-agent", "via", "upgrade-insecure-requests", "sec-gpc",
        "dnt", "save-data", "priority", "referer",
    ]

    private static let preferencePrefixes = ["sec-fetch-", "sec-ch-"]
}

extension HeaderFields {
    /// Returns whether a client with these request fields accepts the content coding and the media type of a response:
    /// RFC 9110, sections 12.5.1 and 12.5.3.
    ///
    /// Without Accept-Encoding it accepts no coding: clients that send none decode none.
    func accept(_ response: HeaderFields) -> Bool {
        acceptCodings(of: response) && acceptType(of: response)
    }

    private func acceptCodings(of response: HeaderFields) -> Bool {
        let weights = weights(of: "accept-encoding")
        let codings = FieldList.members(response.values(bytes: "content-encoding")).map(Self.codingName)
            .filter { $0 != "identity" }
        guard !codings.isEmpty else { return weights["identity"] ?? weights["*"] ?? true }
        return codings.allSatisfy { weights[$0] ?? weights["*"] ?? false }
    }

    private func acceptType(of response: HeaderFields) -> Bool {
        let weights = weights(of: "accept")
        guard !weights.isEmpty, let value = response.values(bytes: "content-type").last,
            let type = FieldList.split(value, at: UInt8(ascii: ";")).first.map(Self.lowercased)
        else { return true }
        let kind = type.prefix { $0 != "/" }
        return weights[type] ?? weights["\(kind)/*"] ?? weights["*/*"] ?? false
    }

    /// Members of a list with weights: whether each has a weight above 0. Parameters other than the weight are ignored.
    private func weights(of name: String) -> [String: Bool] {
        var weights: [String: Bool] = [:]
        for member in FieldList.members(values(bytes: name)) {
            let parts = FieldList.split(member, at: UInt8(ascii: ";"))
            guard let first = parts.first else { continue }
            let weight = parts.dropFirst().map { Self.lowercased($0).filter { $0 != " " && $0 != "\t" } }
                .last { $0.hasPrefix("q=") }
            let isZero = weight.map { $0.dropFirst(2).allSatisfy { $0 == "0" || $0 == "." } } ?? false
            let key = Self.codingName(first)
            weights[key] = weights[key, default: false] || !isZero
        }
        return weights
    }

    private static func lowercased(_ bytes: ArraySlice<UInt8>) -> String {
        String(decoding: bytes.map(\.lowercased), as: UTF8.self)
    }

    /// Name of a coding, or of another member, in lower case.
    private static func codingName(_ bytes: ArraySlice<UInt8>) -> String {
        switch lowercased(bytes) {
        case "x-gzip": "gzip"
        case let name: name
        }
    }
}
