internal import EarshotWire

extension HTTPRequest {
    /// Returns the request with fields added by a rule: conditions, a range, cookies. They replace fields of the same
    /// name.
    public func adding(_ added: HeaderFields) -> HTTPRequest {
        guard !added.isEmpty else { return self }
        var request = self
        let names = Set(added.map { $0.name.map(\.lowercased) })
        request.fields.removeAll { names.contains($0.name.map(\.lowercased)) }
        for field in added { request.fields.add(field.name, field.value) }
        return request
    }
}
