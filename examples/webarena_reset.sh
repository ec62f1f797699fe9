#!/bin/sh
# Brings WebArena's official images back to their first state: --reset examples/webarena_reset.sh
#
# It resets the sites in PRILL_SITES (shopping,reddit; those that prill names), at the addresses in
# SHOPPING, SHOPPING_ADMIN, REDDIT and GITLAB, by the commands of WebArena's guide
# (environment_docker/README.md: "Environment reset", and its step 5). Map and Wikipedia keep nothing.
set -eu
wait="${WAIT:-900}" # seconds that a site may take to answer; GitLab takes more than five minutes

answers() { # until the address answers
    end=$(($(date +%s) + wait))
    until curl --silent --fail --location --max-time 20 --output /dev/null "$1"; do
        [ "$(date +%s)" -lt "$end" ] || { echo "$1 does not answer" >&2; exit 1; }
        sleep "${PAUSE:-2}"
    done
}

magento() { # container, address: the shop answers at its own address only
    until docker exec "$1" mysql -u magentouser -pMyPassword magentodb -e 'SELECT 1' >/dev/null 2>&1; do
        sleep "${PAUSE:-2}"
    done
    docker exec "$1" /var/www/magento2/bin/magento setup:store-config:set --base-url="$2"
    docker exec "$1" mysql -u magentouser -pMyPassword magentodb \
        -e "UPDATE core_config_data SET value=\"$2/\" WHERE path = \"web/secure/base_url\";"
}

for site in $(echo "$PRILL_SITES" | tr , ' '); do
    case "$site" in
    shopping)
        docker rm --force shopping
        docker run --name shopping -p 7770:80 -d shopping_final_0712
        magento shopping "${SHOPPING%/}"
        docker exec shopping /var/www/magento2/bin/magento cache:flush
        answers "$SHOPPING"
        ;;
    shopping_admin)
        shop="${SHOPPING_ADMIN%/admin*}"
        docker rm --force shopping_admin
        docker run --name shopping_admin -p 7780:80 -d shopping_admin_final_0719
        magento shopping_admin "$shop"
        docker exec shopping_admin php /var/www/magento2/bin/magento config:set admin/security/password_is_forced 0
        docker exec shopping_admin php /var/www/magento2/bin/magento config:set admin/security/password_lifetime 0
        docker exec shopping_admin /var/www/magento2/bin/magento cache:flush
        answers "$shop/admin"
        ;;
    reddit)
        docker rm --force forum
        docker run --name forum -p 9999:80 -d postmill-populated-exposed-withimg
        answers "$REDDIT"
        ;;
    gitlab)
        docker rm --force gitlab
        docker run --name gitlab -d -p 8023:8023 gitlab-populated-final-port8023 /opt/gitlab/embedded/bin/runsvdir-start
        docker exec gitlab sed -i "s|^external_url.*|external_url '${GITLAB%/}'|" /etc/gitlab/gitlab.rb
        docker exec gitlab gitlab-ctl reconfigure
        answers "${GITLAB%/}/explore"
        ;;
    esac
done
