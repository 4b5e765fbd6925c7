public import EarshotWire

/// Which header fields are credentials, and so belong to one origin and one trust scope.
public struct CredentialRule: Hashable, Sendable {
    /// The rule without a setting.
    public static let standard = CredentialRule()

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
        let isPlain = request.route.isUsual && request.jar == nil && !request.url.hasUserinfo
        guard !isPlain || !request.fields.isEmpty && names.contains(where: request.fields.contains) else {
            return .shared
        }
        var material = request.fields.canonical(where: isCredential)
        // No header line begins with a LF, so user information and fields cannot be taken for one another.
        if let userinfo = request.url.userinfo { material += ("\n" + userinfo).utf8 }
        // A proxy, or who vouches for a server, can answer what it likes, and a certificate or a jar is a name.
        material += request.route.canonical.utf8
        if let jar = request.jar { material += ("\n\n" + jar).utf8 }
        return TrustScope(material: material)
    }

    /// The way that may be taken to another origin: without the client's certificate.
    public func withoutCredentials(_ route: Route) -> Route {
        var route = route
        route.clientCertificate = nil
        route.clientKey = nil
        return route
    }

    /// The fields that may go to another origin.
    public func withoutCredentials(_ fields: HeaderFields) -> HeaderFields {
        var fields = fields
        fields.removeAll { isCredential($0) || $0.isNamed("host") }
        return fields
    }
}
