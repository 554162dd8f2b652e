-- dialect: postgres
select p.sku, p.label, length(p.manual) as size, md5(p.manual) as digest, count(l.line) as sold
from products p
left join lines l on l.sku = p.sku
group by p.sku, p.label, length(p.manual), md5(p.manual)
