/// Which header fields are credentials, and so belong to one origin and one trust scope.
public struct CredentialRule: Hashable, Sendable {
    /// Lower-case names: the standard ones and those of a setting.
    public let names: [String]

    /// The rule for Authorization, Cookie, Proxy-Authorization, and the names that a setting adds, in any case.
    public init(alsoNamed names: [String] = []) {
        self.names = ["authorization", "cookie", "proxy-authorization"] + names.map { $0.lowercased() }
    }

    /// Whether a field is a credential.
    public func isCredential(_ field: HeaderField) -> Bool {
        names.contains { field.isNamed($0) }
    }

    /// The scope of a request: who may share its flight, its stored answer, and its origin's cool-down.
    public func scope(of request: HTTPRequest) -> TrustScope {
        guard request.url.hasUserinfo || names.contains(where: request.fields.contains) else { return .shared }
        var material = request.fields.canonical(where: isCredential)
        // No header line begins with a LF, so user information and fields cannot be taken for one another.
        if let userinfo = request.url.userinfo { material += ("\n" + userinfo).utf8 }
        return TrustScope(material: material)
    }

    /// The fields that may go to another origin.
    public func withoutCredentials(_ fields: HeaderFields) -> HeaderFields {
        var fields = fields
        fields.removeAll { isCredential($0) || $0.isNamed("host") }
        return fields
    }
}
