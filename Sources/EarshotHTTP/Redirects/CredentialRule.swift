public import EarshotWire

/// Header fields that are credentials, and therefore belong to one origin and one trust scope.
public struct CredentialRule: Hashable, Sendable {
    /// Rule without additional names.
    public static let standard = CredentialRule()

    /// Names in lower case: the standard ones and the configured ones.
    public let fieldNames: [String]

    /// Creates a rule for Authorization, Cookie, Proxy-Authorization and the configured names, in any case.
    public init(additionalNames names: [String] = []) {
        self.fieldNames = ["authorization", "cookie", "proxy-authorization"] + names.map { $0.lowercased() }
    }

    /// Returns whether a field is a credential.
    public func isCredential(_ field: HeaderField) -> Bool {
        fieldNames.contains { field.isNamed($0) }
    }

    /// Returns the trust scope of a request. Requests of the same scope may share flights, stored responses and
    /// cool-downs.
    public func trustScope(of request: HTTPRequest) -> TrustScope {
        let route = request.route.connectionRoute
        let isPlain = route.isDefault && request.cookieJarOwner == nil && !request.url.hasUserinfo
        guard !isPlain || !request.fields.isEmpty && fieldNames.contains(where: request.fields.contains) else {
            return .credentialFree
        }
        var material = request.fields.canonicalBytes(where: isCredential)
        // No header line begins with LF, so user information and fields cannot be confused.
        if let userinfo = request.url.userinfo { material += ("\n" + userinfo).utf8 }
        // A proxy, a certificate authority and an unverified server can forge responses. A client certificate or cookie
        // jar identifies a user.
        material += route.canonicalText.utf8
        if let jar = request.cookieJarOwner { material += ("\n\n" + jar).utf8 }
        return TrustScope(credentialMaterial: material)
    }

    /// Schemes that authenticate a connection and not only one request, contrary to RFC 9110, section 11.1. See RFC
    /// 4559, section 6.
    private static let connectionAuthSchemes: Set = ["negotiate", "ntlm", "kerberos", "nego2"]

    /// Returns whether a server or proxy may take later requests on the same connection as those of this user.
    public static func authenticatesConnection(_ fields: HeaderFields) -> Bool {
        fields.contains { field in
            guard field.isNamed("authorization") || field.isNamed("proxy-authorization") else { return false }
            // Only one scheme is permitted, but a server may look for it in a list.
            return field.value.split(separator: UInt8(ascii: ",")).contains { credentials in
                let scheme = credentials.drop(while: \.isBlank).prefix { $0.isTokenByte }
                return connectionAuthSchemes.contains(String(decoding: scheme.map(\.lowercased), as: UTF8.self))
            }
        }
    }

    /// Names of fields that choose a representation and identify no user.
    private static let anonymousFieldNames = [
        "accept", "accept-charset", "accept-encoding", "accept-language", "cache-control", "pragma", "range",
        "user-agent",
    ]

    /// Returns whether a request holds nothing that may identify a user: no credentials, and no fields with unknown
    /// names, which may be credentials of an application.
    public func isAnonymous(_ request: HTTPRequest) -> Bool {
        request.url.isHTTP && trustScope(of: request) == .credentialFree
            && request.fields.canonicalBytes { field in !Self.anonymousFieldNames.contains { field.isNamed($0) } }
                .isEmpty
    }

    /// Returns the route for another origin, without the client certificate.
    public func withoutCredentials(_ route: Route) -> Route {
        var route = route
        route.clientCertificate = nil
        route.clientKey = nil
        return route
    }

    /// Returns the fields that may be sent to another origin.
    public func withoutCredentials(_ fields: HeaderFields) -> HeaderFields {
        var fields = fields
        fields.removeAll { isCredential($0) || $0.isNamed("host") }
        return fields
    }
}
